"""The private names of aiohttp that `Connection` uses exist in the installed version, and no others are used."""

from __future__ import annotations

import ast
import inspect

import aiohttp
import pytest
from aiohttp.http import HttpRequestParser
from aiohttp.web import RequestHandler

from s3api.http import connection
from s3api.http.connection import AIOHTTP_PRIVATE, Connection
from s3api.http.exchange import Exchange

SOURCE = inspect.getsource(RequestHandler)
UPDATED = f"aiohttp {aiohttp.__version__} has changed: adapt s3api/http/connection.py to it"


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def of_own_class(name: str) -> bool:
    return name in vars(Connection) and not hasattr(RequestHandler, name)


@pytest.mark.parametrize("name", AIOHTTP_PRIVATE)
def test_aiohttp_has_each_private_name(name: str) -> None:
    assert hasattr(RequestHandler, name), f"{UPDATED}: RequestHandler has no {name} any more"


def test_the_table_lists_every_private_name_that_the_connection_uses() -> None:
    used = {
        node.attr
        for node in ast.walk(ast.parse(inspect.getsource(connection)))
        if isinstance(node, ast.Attribute) and is_private(node.attr) and not of_own_class(node.attr)
    }
    assert used == set(AIOHTTP_PRIVATE)


def test_the_connection_overrides_no_private_name() -> None:
    assert not {name for name in vars(Connection) if is_private(name) and hasattr(RequestHandler, name)}


def test_aiohttp_calls_what_the_connection_and_the_exchange_implement() -> None:
    assert "self._current_request._cancel(" in SOURCE, f"{UPDATED}: it cancels requests by another name"
    assert callable(Exchange._cancel)
    assert "self.start()" in SOURCE, f"{UPDATED}: it starts the loop of a connection by another name"
    assert hasattr(HttpRequestParser, "message_consumed"), f"{UPDATED}: the parser has no message_consumed any more"
