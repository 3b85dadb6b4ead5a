"""`entrepot config`: what is checked and shown, and with which status it ends."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from gateway.config import default_text
from tests.endpoint import run_entrepot

SECRET = "hunter2+hunter2/hunter2="
CLOUD = """
[backends.cloud]
type = "s3"
cluster = "home"
bucket = "blocks"
access_key = "AK"
secret_key_env = "CLOUD_SECRET"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "one.toml"
    path.write_text(default_text() + CLOUD)
    return path


def test_a_file_that_stands_anywhere_is_checked(file: Path) -> None:
    told = json.loads(run_entrepot("config", "check", str(file), "--json").stdout)
    assert told["ok"]
    assert len(told["version"]) == 12
    assert "is valid" in run_entrepot("config", "check", str(file)).stdout


def test_a_file_that_is_wrong_fails_with_every_reason(file: Path) -> None:
    file.write_text(file.read_text() + f'secret_key = "{SECRET}"\nbukcet = "x"\n')
    done = run_entrepot("config", "check", str(file), check=False)
    assert done.returncode == 1
    assert f"{file}: backends.cloud.secret_key: a secret does not belong in this file" in done.stderr
    assert f"{file}: backends.cloud.bukcet: there is no such setting; is bucket meant?" in done.stderr
    assert SECRET not in done.stderr


def test_it_is_shown_as_written_and_as_it_holds(file: Path) -> None:
    assert run_entrepot("config", "show", str(file)).stdout.strip() == file.read_text().strip()
    effective = run_entrepot("config", "show", str(file), "--effective").stdout
    found = tomllib.loads(effective)
    assert found["backends"]["cloud"]["calls"] == 64
    assert json.loads(run_entrepot("config", "show", str(file), "--effective", "--json").stdout) == found


def test_a_file_with_a_secret_in_it_is_not_shown(file: Path) -> None:
    file.write_text(file.read_text() + f'secret_key = "{SECRET}"\n')
    for options in ([], ["--effective"], ["--json"]):
        done = run_entrepot("config", "show", str(file), *options, check=False)
        assert done.returncode == 1
        assert SECRET not in done.stdout + done.stderr


def test_without_a_file_and_a_site_the_command_line_is_wrong() -> None:
    assert run_entrepot("config", "check", check=False).returncode == 2


def test_the_schema_is_json() -> None:
    assert json.loads(run_entrepot("config", "schema").stdout)["title"] == "entrepot.toml"
