"""The reference driver: values in a dictionary. The shortest implementation of the contract."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import AsyncIterator, Sequence

from backends import base, errors
from backends.base import Buffer, Listed, Marker, Stat


class Memory(base.Backend):
    """Values in this process's memory, "durable" until the process ends."""

    def __init__(self, name: str = "memory") -> None:
        self._name = name
        self._values: dict[str, bytes] = {}
        self._marker: Marker | None = None

    @property
    def name(self) -> str:
        return self._name

    async def put(self, key: str, value: Sequence[Buffer], crc32c: int) -> None:
        base.check_key(key)
        whole = b"".join(value)
        if base.crc32c_of([whole]) != crc32c:
            raise errors.Corrupted("the value differs from its crc32c", backend=self._name, key=key)
        self._values[key] = whole

    async def get(self, key: str, start: int = 0, length: int | None = None) -> Buffer:
        base.check_range(start, length)
        whole = self._value(key)
        end = len(whole) if length is None else start + length
        if not start <= end <= len(whole):
            raise errors.Corrupted(
                f"the value has {len(whole)} bytes, and {max(start, end)} are needed", backend=self._name, key=key
            )
        return memoryview(whole)[start:end]

    def get_now(self, key: str, start: int = 0, length: int | None = None) -> Buffer | None:
        base.check_range(start, length)
        whole = self._values.get(base.check_key(key))
        if whole is None:
            return None
        end = len(whole) if length is None else start + length
        return memoryview(whole)[start:end] if start <= end <= len(whole) else None

    async def stat(self, key: str) -> Stat:
        return Stat(len(self._value(key)))

    async def delete(self, key: str) -> None:
        self._values.pop(base.check_key(key), None)

    async def list(self, prefix: str = "", after: str = "") -> AsyncIterator[Listed]:
        keys = sorted(key for key in self._values if key.startswith(prefix))
        for key in keys[bisect_right(keys, after) :]:
            value = self._values.get(key)
            if value is not None:
                yield Listed(key, len(value))

    async def marker(self) -> Marker | None:
        return self._marker

    async def claim(self, marker: Marker) -> None:
        if base.is_claimed(self._marker, marker):
            return
        reason = base.check_claim(self._marker, marker)
        if reason is not None:
            raise errors.OwnedByAnotherSite(reason, backend=self._name)
        self._marker = marker

    async def close(self) -> None:
        """Do nothing: the values stay readable, for tests."""

    def _value(self, key: str) -> bytes:
        whole = self._values.get(base.check_key(key))
        if whole is None:
            raise errors.NotFound("no such value", backend=self._name, key=key)
        return whole
