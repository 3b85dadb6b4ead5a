"""The pages for operators: every setting, every metric and every option stands there as the code has it."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import typer.main
from pydantic import BaseModel

from gateway.cli.main import app
from gateway.config import default_text
from gateway.config.models import Config
from gateway.config.topology_sections import LineSection, LocalSection, PolicySection, RuleSection, S3Section
from tests.endpoint import ENTREPOT, command_environment
from tests.pages import ROOT, fences, steps
from tests.reader import MARK, matches

CONFIGURATION = (ROOT / "docs" / "configuration.md").read_text()
OPERATING = (ROOT / "docs" / "operating.md").read_text()
NAMED = {
    "clusters": ("clusters.NAME", ()),
    "lines": ("lines", (LineSection,)),
    "backends": ("backends.NAME", (LocalSection, S3Section)),
    "policies": ("policies.NAME", (PolicySection,)),
    "rules": ("rules", (RuleSection,)),
}


def settings() -> dict[str, object]:
    """Every setting, and its default: the model's, else what `init` writes; None where each must say it."""
    written = tomllib.loads(default_text())
    found: dict[str, object] = {}
    for section, field in Config.model_fields.items():
        path, models = NAMED.get(section) or (section, (field.annotation,))
        before = {} if section in NAMED else written[section]
        for model in models:
            assert issubclass(model, BaseModel)
            for name, each in model.model_fields.items():
                found[f"{path}.{name}"] = before.get(name, None if each.is_required() else each.default)
    return found


def rows(page: str) -> dict[str, str]:
    """The settings that a page's tables list, and the default that stands beside each."""
    return {
        name: default.strip("` ")
        for name, default in re.findall(r"^\| `([a-zA-Z_.]+)` \|([^|]*)\|", page, re.MULTILINE)
    }


def test_every_setting_is_listed_with_its_default():
    listed = {name: default for name, default in rows(CONFIGURATION).items() if not name.startswith("ENTREPOT")}
    known = settings()
    assert listed.keys() == known.keys()
    for name, default in listed.items():
        told = tomllib.loads(f"x = {default}")["x"] if default else None
        assert told == known[name], name


def test_every_variable_of_the_environment_is_listed():
    sources = "".join(path.read_text() for path in (ROOT / "gateway" / "cli").glob("*.py"))
    read = set(re.findall(r'"(ENTREPOT_[A-Z_]+)"', sources))
    assert read == set(re.findall(r"^\| `(ENTREPOT_[A-Z_]+)` ", CONFIGURATION, re.MULTILINE))


def test_every_metric_is_listed():
    made = r'(?:counter|gauge|histogram)\(\s*"(entrepot_[a-z_]+)"'
    sources = "".join(path.read_text() for room in ("gateway", "s3api") for path in (ROOT / room).rglob("*.py"))
    assert set(re.findall(made, sources)) == set(re.findall(r"`(entrepot_[a-z_]+)`", OPERATING))


def commands(group: object = None, above: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], object]]:
    """Every command below *group*, by its words."""
    group = group or typer.main.get_command(app)
    found = []
    for name, each in group.commands.items():
        words = (*above, name)
        found += commands(each, words) if hasattr(each, "commands") else [(words, each)]
    return found


@pytest.mark.parametrize(("words", "command"), [pytest.param(*each, id=" ".join(each[0])) for each in commands()])
def test_every_command_explains_itself_and_each_of_its_options(words, command):
    assert command.help
    for parameter in command.params:
        if parameter.name != "help":
            assert parameter.help, f"{' '.join(words)}: {parameter.name}"
    if words not in {("config", "default"), ("config", "schema")}:  # whose answers are TOML and JSON
        assert any("--json" in parameter.opts for parameter in command.params), "every answer comes as JSON, too"


@pytest.mark.slow
def test_the_commands_of_the_operators_page_print_what_it_says(tmp_path: Path):
    (block,) = [each for each in fences(ROOT / "docs" / "operating.md") if each.language == "console"]
    typed = steps(block)
    entrepot = tmp_path / "bin" / "entrepot"
    entrepot.parent.mkdir()
    python, _, code = ENTREPOT
    entrepot.write_text(f"#!{python}\n{code}\n")
    entrepot.chmod(0o755)
    script = "set -euo pipefail\n" + "".join(f"echo '{MARK} {n}'\n{step.command}\n" for n, step in enumerate(typed))
    environment = {name: value for name, value in command_environment().items() if "_ROOT_" not in name}
    environment["PATH"] = f"{entrepot.parent}:{environment['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout
    printed = re.split(rf"^{MARK} \d+\n", done.stdout, flags=re.MULTILINE)[1:]
    for step, each in zip(typed, printed, strict=True):
        assert matches(step.prints, each), f"$ {step.command}\nshould print {step.prints}, but printed\n{each}"
