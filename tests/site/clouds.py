"""A bucket in memory in the place of the one that `add_cloud` adds to a config, for tests in one process."""

from __future__ import annotations

import pytest

from backends.base import Backend, Marker
from backends.testing.memory import Memory
from gateway.site.storage import backend_factory


class Cloud(Memory):
    """A bucket, which stays when a process lets go of it."""

    @classmethod
    def instead_of_buckets(cls, monkeypatch: pytest.MonkeyPatch) -> Cloud:
        """Every bucket that is opened from now on is this one."""
        cloud = cls("bucket")

        async def open_cloud(*_: object, **__: object) -> Backend:
            return cloud

        monkeypatch.setattr(backend_factory, "open_s3", open_cloud)
        return cloud

    @property
    def held(self) -> Marker:
        """Its marker, which a test may set to anything, as a hostile store could."""
        assert self._marker is not None
        return self._marker

    @held.setter
    def held(self, marker: Marker) -> None:
        self._marker = marker

    async def close(self) -> None:
        """Keep what is stored."""
