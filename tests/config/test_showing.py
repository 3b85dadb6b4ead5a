"""The config as `config show` prints it, and the JSON schema that is published for editors."""

from __future__ import annotations

import json
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest
import tomli_w

from gateway.config import default_text, load_text
from gateway.config.schema import schema_text
from tests.servers.running import absent

ROOT = Path(__file__).parents[2]
HERE = Path("/site")


@pytest.mark.parametrize("path", sorted((ROOT / "conf").glob("*.toml")), ids=lambda path: path.name)
def test_the_effective_config_of_an_example_reads_back_as_the_same_config(path: Path) -> None:
    config = load_text(path.read_text(), HERE)
    text = tomli_w.dumps(config.to_dict())
    assert load_text(text, HERE) == config
    assert load_text(text, HERE).version == config.version


def test_the_published_schema_is_this_codes() -> None:
    assert (ROOT / "conf" / "entrepot.schema.json").read_text() == schema_text(), (
        "run `entrepot config schema > conf/entrepot.schema.json`"
    )


def test_the_schema_knows_every_table_and_setting() -> None:
    schema = json.loads(schema_text())
    assert set(schema["properties"]) >= set(tomllib.loads(default_text()))
    assert schema["additionalProperties"] is False
    server = schema["$defs"]["ServerSection"]["properties"]
    assert set(tomllib.loads(default_text())["server"]) <= set(server)
    assert server["listen"]["type"] == "string"


def complaints_of_the_schema(text: str) -> list[str]:
    """What somebody else's validator says, which knows nothing but what is published."""
    if find_spec("jsonschema") is None:
        absent("jsonschema", "it comes with moto, which is among the test dependencies; run `make env`")
    from jsonschema import Draft202012Validator

    schema = json.loads((ROOT / "conf" / "entrepot.schema.json").read_text())
    Draft202012Validator.check_schema(schema)
    return [each.json_path for each in Draft202012Validator(schema).iter_errors(tomllib.loads(text))]


@pytest.mark.parametrize("path", sorted((ROOT / "conf").glob("*.toml")), ids=lambda path: path.name)
def test_an_example_is_sound_by_the_published_schema(path: Path) -> None:
    assert complaints_of_the_schema(path.read_text()) == []
    assert complaints_of_the_schema(tomli_w.dumps(load_text(path.read_text(), HERE).to_dict())) == []


@pytest.mark.parametrize(
    ("line", "instead", "where"),
    [
        ("workers = 0", 'workers = "two"', "$.server.workers"),
        ("calls = 64", "callz = 64", "$.backends.disk"),
        ('bytes_in_flight = "96 MiB"', 'bytes_in_flight = "96 megs"', "$.server.bytes_in_flight"),
        ('path = "blocks"', "", "$.backends.disk"),
        ('ack = ["disk"]', 'ack = "disk"', "$.policies.default.ack"),
    ],
)
def test_what_is_wrong_is_wrong_by_the_published_schema_too(line: str, instead: str, where: str) -> None:
    assert line in default_text()
    assert complaints_of_the_schema(default_text().replace(line, instead)) == [where]
