"""The sites that this process has open: one for each folder and event loop, shared by every file system there.

A site lives on the loop that it was opened on, as its journal's connection and its readers do. A forked child has
none: what its parent opened stays untouched in it, and it opens its own. When the interpreter ends, the sessions are
ended; whoever is killed leaves that to the lease.
"""

from __future__ import annotations

import asyncio
import atexit
import os
from contextlib import suppress
from multiprocessing.util import Finalize, register_after_fork
from pathlib import Path
from weakref import WeakKeyDictionary

from gateway.errors import EntrepotError
from gateway.site.site import Site

LEAVE_SECONDS = 5.0


class _Shared:
    """A site that is open or being opened, and who uses it."""

    def __init__(self, opening: asyncio.Task[Site]) -> None:
        self.opening = opening
        self.users: set[int] = set()


_ByFolder = dict[Path, _Shared]
_open: WeakKeyDictionary[asyncio.AbstractEventLoop, _ByFolder] = WeakKeyDictionary()
_inherited: list[object] = []
"""The parent's, kept as they are: tidying them up here would touch what the parent still uses."""


async def site_at(folder: Path, user: int) -> Site:
    """The site in *folder*, opened on the running loop if it is not yet. *user*: a number that `let_go` will be told.

    Raises `Misconfigured`, `CommitterGone`."""
    loop = asyncio.get_running_loop()
    sites = _open.setdefault(loop, {})
    shared = sites.get(folder)
    if shared is None:
        shared = sites[folder] = _Shared(loop.create_task(Site.open(folder, "client")))
    shared.users.add(user)
    if shared.opening.done() and not shared.opening.cancelled() and shared.opening.exception() is None:
        return shared.opening.result()
    try:
        return await asyncio.shield(shared.opening)
    except BaseException:
        if shared.opening.done() and sites.get(folder) is shared:
            del sites[folder]  # so that the next one tries again
        raise


async def let_go(user: int) -> None:
    """*user* needs what it opened on this loop no longer: what nobody else uses is closed."""
    sites = _open.get(asyncio.get_running_loop(), {})
    for folder, shared in list(sites.items()):
        shared.users.discard(user)
        if not shared.users:
            del sites[folder]
            with suppress(EntrepotError):
                await (await shared.opening).close()


async def _leave(sites: _ByFolder) -> None:
    for shared in list(sites.values()):
        if shared.opening.done() and not shared.opening.cancelled() and shared.opening.exception() is None:
            with suppress(EntrepotError, OSError):
                await shared.opening.result().leave()


def _at_exit() -> None:
    for loop, sites in list(_open.items()):
        if loop.is_running() and sites:
            with suppress(TimeoutError, RuntimeError):
                asyncio.run_coroutine_threadsafe(_leave(sites), loop).result(LEAVE_SECONDS)
    _open.clear()


def _in_child() -> None:
    global _open  # noqa: PLW0603 (the child begins with nothing open)
    _inherited.append(_open)
    _inherited.extend(list(_open.items()))
    _open = WeakKeyDictionary()


def _at_childs_exit(_: object) -> None:
    """A process of `multiprocessing` that was forked ends without `atexit`, but calls its own finalizers."""
    Finalize(None, _at_exit, exitpriority=0)


atexit.register(_at_exit)
register_after_fork(_at_exit, _at_childs_exit)
os.register_at_fork(after_in_child=_in_child)
