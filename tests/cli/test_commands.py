"""The command line: answers for people and programs, sentences instead of tracebacks, exit statuses."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from gateway import __version__
from tests.endpoint import ENTREPOT, ROOT, Endpoint, command_environment, run_entrepot
from tests.files import block_files


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli") / "site"
    run_entrepot("init", str(folder))
    return folder


def test_init_tells_programs_where_everything_is(tmp_path: Path) -> None:
    told = json.loads(run_entrepot("init", str(tmp_path / "site"), "--name", "lab", "--json").stdout)
    assert told.keys() == {"site", "folder", "access_key", "secret_key_file"}
    assert Path(told["secret_key_file"]).read_text().strip()
    assert 'name = "lab"' in (tmp_path / "site" / "entrepot.toml").read_text()


@pytest.mark.parametrize(
    "command",
    [["user", "list"], ["user", "key", "list"], ["keys", "list"], ["config", "check"]],
)
def test_every_answer_comes_as_text_and_as_json(site: Path, command: list[str]) -> None:
    assert run_entrepot(*command, "--site", str(site)).stdout.strip()
    json.loads(run_entrepot(*command, "--site", str(site), "--json").stdout)


@pytest.mark.parametrize("command", [["fsck"], ["fsck", "--read"], ["gc", "--dry-run"], ["gc"], ["status"]])
def test_commands_on_a_whole_site_answer_both_ways_too(site: Path, command: list[str]) -> None:
    name, *options = command
    assert run_entrepot(name, str(site), *options).stdout.strip()
    json.loads(run_entrepot(name, str(site), *options, "--json").stdout)


def test_the_version_is_the_distributions() -> None:
    assert json.loads(run_entrepot("version", "--json").stdout)["entrepot"] == __version__
    assert f'version = "{__version__}"' in (ROOT / "pyproject.toml").read_text()


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["bogus"], 2, "No such command 'bogus'"),
        (["user", "add"], 2, "Missing argument 'NAME'"),
        (["serve"], 2, "Missing argument 'DIR'"),
        (["serve", "SITE", "--listen", "nowhere"], 1, "an address is HOST:PORT"),
        (["serve", "SITE", "--workers", "0"], 2, "--workers"),
        (["fsck", "/nonexistent"], 1, "cannot be read: No such file"),
        (["user", "remove", "nobody", "--site", "SITE"], 1, "there is no user nobody"),
        (["user", "add", "a b", "--site", "SITE"], 1, "not a valid user name"),
        (["user", "add", "root", "--site", "SITE"], 1, "there is a user root already"),
        (["user", "add", "x", "--access-key", "ABC", "--site", "SITE"], 1, "give both"),
        (
            ["user", "add", "x", "--access-key", "ABCDEFGH", "--secret-key-file", "BINARY", "--site", "SITE"],
            1,
            "not a text file",
        ),
        (
            ["user", "add", "x", "--access-key", "ABCDEFGH", "--secret-key-file", "/none", "--site", "SITE"],
            1,
            "/none: No",
        ),
        (
            ["restore", "--take-over", "--yes", "/none", "/none/anew", "--master-key", "SITE/master.key"],
            1,
            "/none is not a complete backup",
        ),
        (["backup", "SITE", "/proc/none"], 1, "no backup can be made in /proc/none"),
        (["keys", "rotate", "--site", "/none"], 1, "/none/entrepot.toml: cannot be read"),
        (["user", "key", "remove", "NONE", "--site", "SITE"], 1, "there is no access key NONE"),
        (["init", "SITE"], 1, "is a site already"),
    ],
)
def test_what_cannot_be_done_is_one_sentence_and_a_status(
    site: Path, arguments: list[str], status: int, says: str
) -> None:
    (site.parent / "binary").write_bytes(b"\xb2\xffsecret")
    stand_for = {"SITE": str(site), "BINARY": str(site.parent / "binary")}
    done = run_entrepot(*(stand_for.get(each, each) for each in arguments), check=False)
    assert "xb2" not in done.stderr, "what a secret file holds is not repeated"
    assert done.returncode == status
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not done.stdout


def test_errors_come_as_json_where_answers_do(site: Path) -> None:
    done = run_entrepot("user", "remove", "nobody", "--site", str(site), "--json", check=False)
    assert json.loads(done.stderr) == {"error": "NoSuchUser", "message": "there is no user nobody"}


def test_a_config_that_is_wrong_is_told_line_by_line(tmp_path: Path) -> None:
    run_entrepot("init", str(tmp_path / "site"))
    config = tmp_path / "site" / "entrepot.toml"
    config.write_text(config.read_text().replace("workers = 0", "wrokers = 0").replace("expire_days", "expire_weeks"))
    for command in (["config", "check", "--site"], ["serve"], ["status"]):
        done = run_entrepot(*command, str(tmp_path / "site"), check=False)
        assert done.returncode == 1
        assert f"{config}: server.wrokers: there is no such setting" in done.stderr
        assert f"{config}: uploads.expire_weeks: there is no such setting" in done.stderr


def test_fsck_says_by_its_status_that_a_block_is_lost(tmp_path: Path) -> None:
    from tests.endpoint import started
    from tests.site.running import client

    site = tmp_path / "site"
    with started(site) as (endpoint, _):
        s3 = client(endpoint)
        s3.create_bucket(Bucket="kept")
        s3.put_object(Bucket="kept", Key="a", Body=bytes(1 << 20))
    (block,) = block_files(site / "blocks")
    sealed = block.read_bytes()
    block.write_bytes(sealed[:100] + bytes([sealed[100] ^ 1]) + sealed[101:])
    assert run_entrepot("fsck", str(site), check=False).returncode == 0
    found = run_entrepot("fsck", str(site), "--read", "--json", check=False)
    assert (found.returncode, json.loads(found.stdout)["status"]) == (3, "wrong")
    block.unlink()
    found = run_entrepot("fsck", str(site), "--json", check=False)
    assert (found.returncode, json.loads(found.stdout)["kinds"]) == (3, {"block-missing": 1})
    (site / "blocks").rename(site / "away")
    found = run_entrepot("fsck", str(site), "--json", check=False)
    told = json.loads(found.stdout)
    assert (found.returncode, told["status"], told["unchecked"]) == (4, "unchecked", 1)
    assert told["kinds"] == {"backend-unreachable": 1}


def test_a_start_tells_programs_where_it_is(tmp_path: Path) -> None:
    site = tmp_path / "site"
    run_entrepot("init", str(site))
    process = subprocess.Popen(
        [*ENTREPOT, "serve", str(site), "--listen", "127.0.0.1:0", "--json"],
        env=command_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        told = json.loads("".join(iter(process.stdout.readline, "}\n")) + "}")
    finally:
        process.terminate()
        assert process.wait(60) == 0
    assert told.keys() == {"endpoint", "access_key", "metrics", "secret_key_file", "rehearsal"}
    assert told["rehearsal"] is False
    assert Path(told["secret_key_file"]).read_text().strip()


def test_commands_work_beside_a_running_gateway(endpoint: Endpoint) -> None:
    told = json.loads(run_entrepot("status", str(endpoint.dir), "--json").stdout)
    assert told["serving"]["endpoint"] == endpoint.url
    assert run_entrepot("fsck", str(endpoint.dir)).stdout.rstrip().endswith(("clean", "wasted"))
