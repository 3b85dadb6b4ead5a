"""The Dockerfile and its entry point, as far as they can be tried without building an image."""

import json
import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.endpoint import ENTREPOT, ROOT, command_environment, run_entrepot

DOCKERFILE = (ROOT / "Dockerfile").read_text()
ENTRYPOINT = ROOT / "conf" / "container-entrypoint"
INSTRUCTIONS = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", DOCKERFILE, flags=re.MULTILINE)).splitlines()


def instructions(name: str) -> list[str]:
    return [line.split(maxsplit=1)[1] for line in INSTRUCTIONS if line.startswith(name + " ")]


def copied() -> list[str]:
    """What the Dockerfile copies out of this repository."""
    words = [shlex.split(each) for each in instructions("COPY") if "--from=" not in each]
    return [word for each in words for word in each[:-1] if not word.startswith("--")]


def test_what_is_copied_exists_and_is_not_ignored():
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for path in copied():
        assert (ROOT / path).exists(), path
        assert path.split("/")[0] in let_in, f"{path} is kept out by .dockerignore"
    assert let_in == {path.split("/")[0] for path in copied()}


def test_every_package_of_the_wheel_is_copied():
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert set(config["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]) <= set(copied())
    assert {config["project"]["readme"], *config["project"]["license-files"]} <= set(copied())


def test_it_is_two_stages_not_root_one_volume_and_has_a_health_check():
    assert len(instructions("FROM")) == 2
    assert [int(user) > 0 for user in instructions("USER")] == [True]
    assert instructions("VOLUME") == ["/var/lib/entrepot"]
    assert len(instructions("HEALTHCHECK")) == 1
    assert instructions("ENTRYPOINT") == [json.dumps([ENTRYPOINT.name])]


def test_the_health_check_is_python_that_parses():
    command = json.loads(instructions("HEALTHCHECK")[0].partition("CMD ")[2])
    assert command[:2] == ["python", "-c"]
    compile(command[2], "HEALTHCHECK", "exec")
    assert "/healthz" in command[2]


def test_the_ports_are_those_of_the_config():
    default = tomllib.loads((ROOT / "gateway" / "config" / "default.toml").read_text())
    ports = {default[table]["listen"].rpartition(":")[2] for table in ("server", "metrics")}
    assert set(instructions("EXPOSE")[0].split()) == ports


def test_the_entry_point_is_a_shell_script_whose_commands_exist():
    assert ENTRYPOINT.stat().st_mode & 0o111 == 0o111
    assert subprocess.run(["sh", "-n", str(ENTRYPOINT)]).returncode == 0
    named = re.findall(r"\bentrepot ([a-z]+) .*", ENTRYPOINT.read_text())
    assert named[-2:] == ["init", "serve"]
    for verb in set(named):
        assert run_entrepot(verb, "--help").stdout
    offered = run_entrepot("serve", "--help").stdout
    assert "--listen" in offered
    assert "--metrics" in offered


@pytest.fixture
def container(tmp_path: Path):
    """Runs the entry point with an `entrepot` that makes a real site but only says that it would serve it."""
    site, programs = tmp_path / "site", tmp_path / "bin"
    programs.mkdir()
    real = " ".join(shlex.quote(word) for word in ENTREPOT)
    (programs / "entrepot").write_text(f'#!/bin/sh\n[ "$1" = init ] && exec {real} "$@"\necho "would: $@"\n')
    (programs / "entrepot").chmod(0o755)

    def run(*arguments: str) -> str:
        environment = command_environment() | {"ENTREPOT_SITE": str(site)}
        environment["PATH"] = f"{programs}:{environment['PATH']}"
        done = subprocess.run([ENTRYPOINT, *arguments], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return site, run


def test_the_first_start_makes_the_site_and_the_second_keeps_it(container):
    site, run = container
    serves = f"would: serve {site} --listen 0.0.0.0:9000 --metrics 0.0.0.0:9001"
    assert f"{serves} --more\n" in run("--more")
    secret = (site / "root.secret").read_text()
    assert run() == f"{serves}\n"
    assert (site / "root.secret").read_text() == secret


def test_what_runs_is_pinned_as_what_is_tested():
    def pins(name: str) -> set[str]:
        return set(re.findall(r"^([\w.-]+==\S+)", (ROOT / name).read_text(), re.MULTILINE))

    assert pins("requirements-runtime.lock") - pins("requirements.lock") == set()
