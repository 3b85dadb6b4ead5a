"""Turn pydantic's validation errors into messages for people: key path in the file, reason, and the wrong value.

A value that might be a secret is not shown, and neither is a whole table, which might contain one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel

from gateway.config.models import Config
from gateway.topology import Problem

_PLAIN = {
    "missing": "is missing",
    "bool_type": "must be true or false",
    "string_type": "must be text in quotes",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "list_type": "must be a list",
    "dict_type": "must be a table",
    "model_type": "must be a table",
    "model_attributes_type": "must be a table",
    "union_tag_not_found": "is missing",
}
_UNSHOWN = {"missing", "extra_forbidden", "union_tag_not_found", "union_tag_invalid", "too_long"}
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_SECRET_NAME = re.compile(r"secret_key$|^password$|session_token$")
_SECRET = re.compile(r"secret|token|password|credential|access_key|endpoint", re.IGNORECASE)
_TYPES = ("local", "s3")
"""Types of backends. Pydantic's paths contain them after the backend's name; the file's key paths do not."""


def to_problem(error: dict[str, Any]) -> Problem:
    """Convert an item of `ValidationError.errors()`."""
    kind, where = error["type"], _path(error["loc"])
    if kind == "extra_forbidden":
        return Problem(_joined(where), _unknown(where, _type_in(error["loc"])))
    if kind.startswith("union_tag"):
        where = [*where, "type"]
    reason = _PLAIN.get(kind) or _sentence(error)
    if "input" in error and kind not in _UNSHOWN and not any(_SECRET.search(str(each)) for each in where):
        reason += _not(error["input"], kind)
    return Problem(_joined(where), reason)


def _sentence(error: dict[str, Any]) -> str:
    if error["type"] == "too_long":
        return f"has {len(error['input'])} entries; at most {error['ctx']['max_length']} are allowed"
    if error["type"] == "union_tag_invalid":
        return f"must be {' or '.join(map(repr, _TYPES))}"
    reason = str(error["msg"]).removeprefix("Value error, ")
    return reason[:1].lower() + reason[1:]


def _not(value: Any, kind: str) -> str:
    if isinstance(value, dict):
        return (
            "" if kind == "value_error" else ", not a table"
        )  # a check of several settings has the table as its input
    if isinstance(value, list):
        return f", not a list of {len(value)}" if any(isinstance(each, dict) for each in value) else _shown(value)
    return _shown(value) if not isinstance(value, BaseModel) else ""


def _shown(value: Any) -> str:
    shown = repr(value)
    return f", not {shown if len(shown) <= 60 else shown[:57] + '...'}"


def _path(location: tuple[str | int, ...]) -> list[str | int]:
    where = [each for each in location if each != "[key]"]
    if _type_in(location):
        del where[2]
    return where


def _type_in(location: tuple[str | int, ...]) -> str:
    """Return the type of the backend at *location*; empty if the error is not about a setting of a backend."""
    is_setting = len(location) > 2 and location[0] == "backends" and location[2] in _TYPES
    return str(location[2]) if is_setting else ""


def _joined(where: list[str | int]) -> str:
    """Return a key path such as `rules[0].policy`. List items are counted from 0."""
    return "".join(f"[{each}]" if isinstance(each, int) else f".{_key(each)}" for each in where).removeprefix(".")


def _key(written: str) -> str:
    """Return a key as TOML writes it: quoted, unless it is a bare key."""
    return written if _BARE_KEY.fullmatch(written) else json.dumps(written)


def _unknown(where: list[str | int], of_type: str) -> str:
    """Return the message for an unknown setting, with the setting that was probably meant."""
    name = str(where[-1])
    if _SECRET_NAME.search(name):
        return "a secret does not belong in this file: secret_key_env or secret_key_file names where it is"
    known = set(_settings(Config, where[:-1], of_type))
    if of_type and name not in known and name in set(_settings(Config, where[:-1], "")):
        return f"a backend of type {of_type!r} has no such setting"
    near = get_close_matches(name, sorted(known), n=1, cutoff=0.6)
    return f"there is no such setting; is {near[0]} meant?" if near else "there is no such setting"


def _settings(table: Any, where: list[str | int], of_type: str) -> Iterator[str]:
    """Yield the settings of the table at the path *where* below *table*. If *of_type* is empty, yield those of backends
    of all types."""
    if isinstance(table, type) and issubclass(table, BaseModel):
        fields = table.model_fields
        if not where and (not of_type or of_type in get_args(fields["type"].annotation)):
            yield from fields
        elif where and where[0] in fields:
            yield from _settings(fields[str(where[0])].annotation, where[1:], of_type)
        return
    # a dictionary or list of tables, whose key or index is in the path; or a union of tables, which has no path element
    inside = [each for each in get_args(table) if each is not str]
    rest = where[1:] if getattr(table, "__origin__", None) in {dict, list} else where
    for each in inside:
        yield from _settings(each, rest, of_type)
