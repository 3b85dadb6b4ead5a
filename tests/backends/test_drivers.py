"""Every driver keeps the contract."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from backends.base import Backend
from backends.local.backend import Local
from backends.local.wal import LOG_BYTES_MIN
from backends.testing.memory import Memory
from tests.backends.contract import Contract
from tests.backends.example_driver import SqliteBackend


class TestMemory(Contract):
    @pytest.fixture
    async def backend(self) -> AsyncIterator[Backend]:
        yield Memory()


class TestExample(Contract):
    """The example that docs/architecture.md explains."""

    @pytest.fixture
    async def backend(self, tmp_path: Path) -> AsyncIterator[Backend]:
        example = SqliteBackend(str(tmp_path / "example.db"))
        yield example
        await example.close()


class TestLocal(Contract):
    """With its write-ahead logs prepared."""

    @pytest.fixture
    async def backend(self, tmp_path: Path) -> AsyncIterator[Backend]:
        local = await Local.open(str(tmp_path / "blocks"), wal_bytes=LOG_BYTES_MIN)
        await local.warm()
        yield local
        await local.close()


class TestLocalWithoutWal(Contract):
    """Every put synced the plain way."""

    @pytest.fixture
    async def backend(self, tmp_path: Path) -> AsyncIterator[Backend]:
        local = await Local.open(str(tmp_path / "blocks"), wal_bytes=0, threads=2, descriptors=2)
        yield local
        await local.close()
