"""What this process has open: one site for each folder, one connection for each gateway, on each event loop, shared by
every file system there.

A site lives on the loop that it was opened on, as its journal's connection and its readers do, and so do the
connections to a gateway. A loop that ends as `asyncio.run` ends it closes them; those of one that was closed by hand
are let go of by the next that opens any. A forked child has none: what its parent opened stays untouched in it, and it
opens its own. When the interpreter ends, the sessions are ended; whoever is killed leaves that to the lease.
"""

from __future__ import annotations

import asyncio
import atexit
import os
from collections.abc import AsyncGenerator
from contextlib import suppress
from multiprocessing.util import Finalize, register_after_fork
from pathlib import Path
from weakref import WeakKeyDictionary

from gateway.errors import EntrepotError
from gateway.posix.rpc.client import RpcClient
from gateway.posix.rpc.endpoint import Endpoint
from gateway.site.site import Site
from gateway.timing import Timing, timing_from_environment

Opened = Site | RpcClient


class _Shared:
    """What is open or being opened, and who uses it."""

    def __init__(self, opening: asyncio.Task[Opened]) -> None:
        self.opening = opening
        self.users: set[int] = set()


class _Sharing(dict[Path | Endpoint, _Shared]):
    """What one loop has open."""

    def __init__(self, timing: Timing) -> None:
        super().__init__()
        self.leave_seconds = timing.files.leave_seconds
        self.ending: AsyncGenerator[None, None] | None = None
        """Waits for the loop's end, kept here alone."""

    def begin(self, at: Path | Endpoint) -> _Shared:
        """Open it. What fails is forgotten, also where nobody waits for it any more: the next one tries again."""
        shared = self[at] = _Shared(asyncio.create_task(_opening(at)))

        def ended(_: asyncio.Task[Opened]) -> None:
            if _found(shared) is None and self.get(at) is shared:
                del self[at]

        shared.opening.add_done_callback(ended)
        return shared


_open: WeakKeyDictionary[asyncio.AbstractEventLoop, _Sharing] = WeakKeyDictionary()
_inherited: list[object] = []
"""The parent's, kept as they are: tidying them up here would touch what the parent still uses."""


async def acquire_connection(at: Path | Endpoint, user: int) -> Opened:
    """The site in that folder, or the gateway, opened on the running loop if it is not yet. *user*: a number that
    `release_connection` will be told.

    Raises `Misconfigured`, `CommitterGone`; of a gateway also `AccessDenied`, `Unavailable`."""
    loop = asyncio.get_running_loop()
    known = _open.get(loop)
    if known is None:
        _let_go_of_ended_loops()
        known = _open[loop] = _Sharing(timing_from_environment())
        known.ending = _until_the_loop_ends(known)
        await anext(known.ending)
    shared = known.get(at)
    if shared is None:
        shared = known.begin(at)
    shared.users.add(user)
    if (found := _found(shared)) is not None:
        return found
    return await asyncio.shield(shared.opening)


async def _opening(at: Path | Endpoint) -> Opened:
    return await Site.open(at, "client") if isinstance(at, Path) else await RpcClient.connect(at)


async def _until_the_loop_ends(known: _Sharing) -> AsyncGenerator[None, None]:
    """A loop closes the generators that have begun on it before it ends: the last moment to await anything."""
    try:
        yield
    finally:
        _open.pop(asyncio.get_running_loop(), None)
        with suppress(TimeoutError):
            async with asyncio.timeout(known.leave_seconds):
                for shared in list(known.values()):
                    if (found := _found(shared)) is not None:
                        with suppress(EntrepotError, OSError):
                            await found.close()


def _let_go_of_ended_loops() -> None:
    """Of those that did not tell that they end: nobody is there who could close anything."""
    for loop in [ref() for ref in _open.keyrefs()]:
        if loop is not None and loop.is_closed():
            for shared in (_open.pop(loop, None) or {}).values():
                if isinstance(found := _found(shared), RpcClient):
                    found.forget()


def _found(shared: _Shared) -> Opened | None:
    """What was opened, if it was."""
    opening = shared.opening
    return opening.result() if opening.done() and not opening.cancelled() and opening.exception() is None else None


async def release_connection(user: int) -> None:
    """*user* needs what it opened on this loop no longer: what nobody else uses is closed."""
    known = _open.get(asyncio.get_running_loop())
    if known is None:
        return
    for at, shared in list(known.items()):
        shared.users.discard(user)
        if not shared.users:
            del known[at]
            with suppress(EntrepotError):
                await (await shared.opening).close()


async def _leave(known: _Sharing) -> None:
    for shared in list(known.values()):
        if (found := _found(shared)) is not None:
            with suppress(EntrepotError, OSError):
                await found.end_session()


def _at_exit() -> None:
    for loop, known in list(_open.items()):
        if loop.is_running() and known:
            with suppress(TimeoutError, RuntimeError):
                asyncio.run_coroutine_threadsafe(_leave(known), loop).result(known.leave_seconds)
        else:  # whoever made it has stopped it: the operating system ends the connections
            _forget(known)
    _open.clear()


def _forget(known: _Sharing) -> None:
    for shared in known.values():
        if isinstance(found := _found(shared), RpcClient):
            found.forget()
            _inherited.append(found)


def _in_child() -> None:
    global _open  # noqa: PLW0603 (the child begins with nothing open)
    _inherited.append(_open)
    _inherited.extend(list(_open.items()))
    for known in _open.values():
        _forget(known)
    _open = WeakKeyDictionary()


def _at_childs_exit(_: object) -> None:
    """A process of `multiprocessing` that was forked ends without `atexit`, but calls its own finalizers."""
    Finalize(None, _at_exit, exitpriority=0)


atexit.register(_at_exit)
register_after_fork(_at_exit, _at_childs_exit)
os.register_at_fork(after_in_child=_in_child)
