"""The two ways to a tree that the tests of this folder go, a site in this process and a gateway over HTTP, and a file
system over each, which they share; and the bare wire to the gateway."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gateway.engine.types import ObjectMeta
from gateway.posix.bodies import BytesBody
from gateway.posix.fsspec.filesystem import EntrepotFileSystem
from gateway.posix.rpc.client import RpcClient
from gateway.timing import VARIABLE
from tests.endpoint import CALM, Endpoint, started
from tests.new_sites import new_site
from tests.posix.bad_line import BadLine
from tests.posix.connecting import connected

_numbers = itertools.count()

IN_PROCESS, OVER_HTTP = "in-process", "over-http"


class Way(NamedTuple):
    """A way to a tree: *options* are the file system's; *folder* holds the site."""

    folder: Path
    options: dict[str, Any]
    variables: dict[str, str]
    """The same, said by the environment."""


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    """A gateway that all who go over HTTP share."""
    folder = tmp_path_factory.mktemp("served") / "site"
    with started(folder, ["--workers", "2"], {VARIABLE: CALM}) as (running, _):
        yield running


@pytest.fixture(scope="session", params=[IN_PROCESS, OVER_HTTP])
def way(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Way:
    """Each test that asks for it runs once in process and once over HTTP."""
    if request.param == IN_PROCESS:
        folder = new_site(tmp_path_factory.mktemp("posix") / "site")
        return Way(folder, {"site": folder}, {"ENTREPOT_SITE": str(folder)})
    running: Endpoint = request.getfixturevalue("served")
    url, key, secret = running.url, running.access_key, running.secret_key
    return Way(
        running.dir,
        {"endpoint": url, "key": key, "secret": secret},
        {"ENTREPOT_ENDPOINT": url, "ENTREPOT_ACCESS_KEY": key, "ENTREPOT_SECRET_KEY": secret},
    )


@pytest.fixture(scope="session")
def folder(way: Way) -> Path:
    """The site, for those who look at its journal beside the file system."""
    return way.folder


@pytest.fixture(scope="session")
def reach(way: Way) -> dict[str, Any]:
    """The options of a file system that goes this way."""
    return way.options


@pytest.fixture(scope="session")
def shared(reach: dict[str, Any]) -> Iterator[EntrepotFileSystem]:
    """One file system for all, so that the site is opened once."""
    fs = EntrepotFileSystem(**reach)
    yield fs
    fs.close()


@pytest.fixture
def fs(shared: EntrepotFileSystem) -> EntrepotFileSystem:
    return shared


@pytest.fixture
def bucket(shared: EntrepotFileSystem) -> str:
    """An empty bucket of one's own."""
    name = f"bucket-{next(_numbers)}"
    shared.mkdir(name)
    return name


@pytest.fixture
async def api(served: Endpoint) -> AsyncIterator[RpcClient]:
    """The gateway's verbs, over HTTP."""
    async with connected(served) as api:
        yield api


@pytest.fixture
async def place(api: RpcClient) -> str:
    """A bucket with the objects `x` and `d/y`."""
    name = f"wire-{secrets.token_hex(6)}"
    await api.make_bucket(name)
    for key in (b"x", b"d/y"):
        await api.put(name, key, BytesBody(key), len(key), ObjectMeta({"x-amz-meta-a": "é"}, {"tag": "1"}))
    return name


@pytest.fixture
def line(served: Endpoint) -> Iterator[BadLine]:
    """A way to the gateway that does what it is told amiss."""
    bad = BadLine(served.url)
    yield bad
    bad.close()
