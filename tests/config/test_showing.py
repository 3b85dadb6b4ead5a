"""The config as it is shown, and the schema that is published for editors."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config import default_text, load_text
from gateway.config.schema import schema_text
from gateway.config.writing import to_toml

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
