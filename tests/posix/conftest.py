"""A site that the tests of this folder share, and a file system over it in this process."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.posix.filesystem import EntrepotFileSystem
from gateway.site.founding import found

_numbers = itertools.count()


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site that nobody serves."""
    return asyncio.run(found(tmp_path_factory.mktemp("posix") / "site")).folder


@pytest.fixture(scope="session")
def shared(folder: Path) -> Iterator[EntrepotFileSystem]:
    """One file system for all, so that the site is opened once."""
    fs = EntrepotFileSystem(site=folder)
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
