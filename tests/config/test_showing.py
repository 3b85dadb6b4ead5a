"""The config as it is shown, and the schema that is published for editors."""

from __future__ import annotations

import json
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config import default_text, load_text
from gateway.config.schema import schema_text
from gateway.config.writing import to_toml
from tests.servers.running import absent

ROOT = Path(__file__).parents[2]
HERE = Path("/site")

plain = st.recursive(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
    | st.integers(-9, 9)
    | st.booleans()
    | st.floats(0, 9, allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab- é.", min_size=1, max_size=3), inner),
    max_leaves=8,
)


def uniform(value: object) -> bool:
    """Lists hold tables alone or none: that is all that a config has."""
    if isinstance(value, dict):
        return all(map(uniform, value.values()))
    if isinstance(value, list):
        tables = [isinstance(each, dict) for each in value]
        return all(map(uniform, value)) and (all(tables) or not any(tables)) and not deep(value)
    return True


def deep(value: list[object]) -> bool:
    return any(isinstance(each, list) and any(isinstance(one, (dict, list)) for one in each) for each in value)


@given(st.dictionaries(st.text("ab- é.", min_size=1, max_size=3), plain).filter(uniform))
def test_what_is_written_as_toml_is_read_as_it_was(tables: dict[str, object]) -> None:
    assert tomllib.loads(to_toml(tables)) == tables


@pytest.mark.parametrize("path", sorted((ROOT / "conf").glob("*.toml")), ids=lambda path: path.name)
def test_what_holds_of_an_example_can_be_shown_and_read_again(path: Path) -> None:
    config = load_text(path.read_text(), HERE)
    shown = to_toml(config.plain())
    assert load_text(shown, HERE) == config
    assert load_text(shown, HERE).version == config.version


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
    assert complaints_of_the_schema(to_toml(load_text(path.read_text(), HERE).plain())) == []


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
