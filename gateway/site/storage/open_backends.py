"""The open backends of a process, and closing them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING

from backends import errors as backend_errors
from backends.base import Backend
from gateway.errors import EntrepotError
from gateway.site.storage.marker_guard import MarkerGuard

if TYPE_CHECKING:
    from _collections_abc import dict_items, dict_keys, dict_values


class OpenBackends(dict[int, MarkerGuard]):
    """Backends by the journal's ids. Iterating is safe while backends are added or removed: it sees those that were
    there when it began."""

    def __iter__(self) -> Iterator[int]:
        return iter(dict(super().items()))

    def keys(self) -> dict_keys[int, MarkerGuard]:
        return dict(super().items()).keys()

    def values(self) -> dict_values[int, MarkerGuard]:
        return dict(super().items()).values()

    def items(self) -> dict_items[int, MarkerGuard]:
        return dict(super().items()).items()


async def close_all(backends: Iterable[Backend]) -> None:
    """Close all *backends*. Errors of backends are ignored; another error is raised after all of them were closed."""
    async with AsyncExitStack() as held:
        for backend in backends:
            held.push_async_callback(_close_one, backend)


async def _close_one(backend: Backend) -> None:
    with suppress(backend_errors.BackendError, EntrepotError):
        await backend.close()
