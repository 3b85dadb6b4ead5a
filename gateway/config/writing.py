"""Plain values as TOML, enough for what a config holds: tables, lists, text, numbers, booleans. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any


def to_toml(tables: Mapping[str, Any]) -> str:
    """A file that means *tables*."""
    return "\n".join(_table(tables, ())).strip() + "\n"


def _table(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    for key, value in table.items():
        if not _is_table(value):
            yield f"{_key(key)} = {_value(value)}"
    for key, value in table.items():
        below = (*path, key)
        if isinstance(value, Mapping):
            yield ""
            yield f"[{'.'.join(map(_key, below))}]"
            yield from _table(value, below)
        elif _is_table(value):
            for each in value:
                yield ""
                yield f"[[{'.'.join(map(_key, below))}]]"
                yield from _table(each, below)


def _is_table(value: Any) -> bool:
    return isinstance(value, Mapping) or (isinstance(value, list) and bool(value) and isinstance(value[0], Mapping))


def _key(key: str) -> str:
    return key if key.replace("-", "").replace("_", "").isalnum() and key.isascii() else json.dumps(key)


def _value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, float):
        return repr(value)
    return quoted(value) if isinstance(value, str) else json.dumps(value)


def quoted(text: str) -> str:
    """*text* as a basic string of TOML, in which control characters are escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
