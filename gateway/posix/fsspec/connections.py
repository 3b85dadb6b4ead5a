"""The sites and gateways that this process has open, shared by its file systems.

**Theory of operation.** For each event loop there is one `_LoopConnections`: a connection for each site's folder and
each gateway. A connection belongs to the loop that opened it, since its sockets and its readers do. Its states:

- *opening*: its task runs. File systems that need it meanwhile wait for the same task. If the task fails, the
  connection is removed, and the next file system opens another one.
- *open*: used by the file systems in `file_systems`. When the last of them calls `release_connection`, it is closed.

Connections end in one of these ways:

- A loop that ends as `asyncio.run` ends it closes its async generators. `_close_at_loop_end` is one, and closes the
  connections of its loop, for at most `leave_seconds`.
- A loop that was closed by its owner runs nothing any more. The next loop that opens a connection drops those of closed
  loops without closing them (`_drop_closed_loops`).
- A forked child has no connections. Those of its parent stay untouched in `_inherited`, since releasing them would
  disturb the parent.
- At the exit of the interpreter, the sessions are ended. If a process is killed, the lease of its session expires.
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

Connection = Site | RpcClient


class _SharedConnection:
    """A connection that is open or being opened, and which file systems use it."""

    def __init__(self, opening: asyncio.Task[Connection]) -> None:
        self.opening = opening
        self.file_systems: set[int] = set()
        """Their numbers."""

    @property
    def connection(self) -> Connection | None:
        """The connection, if it is open."""
        task = self.opening
        return task.result() if task.done() and not task.cancelled() and task.exception() is None else None


class _LoopConnections(dict[Path | Endpoint, _SharedConnection]):
    """The connections of one event loop."""

    def __init__(self, timing: Timing) -> None:
        super().__init__()
        self.leave_seconds = timing.files.leave_seconds
        self.at_loop_end: AsyncGenerator[None, None] | None = None
        """The generator that the loop closes when it ends. This is the only reference to it."""

    def open(self, at: Path | Endpoint) -> _SharedConnection:
        """Begin to open a connection. If that fails, it is removed, even if no file system waits for it any more."""
        shared = self[at] = _SharedConnection(asyncio.create_task(_connect(at)))

        def remove_failed(_: asyncio.Task[Connection]) -> None:
            if shared.connection is None and self.get(at) is shared:
                del self[at]

        shared.opening.add_done_callback(remove_failed)
        return shared


_connections: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopConnections] = WeakKeyDictionary()
_inherited: list[object] = []
"""References to the parent's connections, so that a child does not collect and close them."""


async def acquire_connection(at: Path | Endpoint, number: int) -> Connection:
    """Return the connection to a site's folder or a gateway on the running loop, opening it if necessary.

    *number*: that of the file system, which it passes to `release_connection`. Raises `Misconfigured`,
    `CommitterGone`; for a gateway also `AccessDenied`, `Unavailable`."""
    loop = asyncio.get_running_loop()
    connections = _connections.get(loop)
    if connections is None:
        _drop_closed_loops()
        connections = _connections[loop] = _LoopConnections(timing_from_environment())
        connections.at_loop_end = _close_at_loop_end(connections)
        await anext(connections.at_loop_end)
    shared = connections.get(at)
    if shared is None:
        shared = connections.open(at)
    shared.file_systems.add(number)
    if (connection := shared.connection) is not None:
        return connection
    return await asyncio.shield(shared.opening)


async def release_connection(number: int) -> None:
    """Release all connections of the running loop that the file system *number* uses. Those that no other one uses are
    closed."""
    connections = _connections.get(asyncio.get_running_loop())
    if connections is None:
        return
    for at, shared in list(connections.items()):
        shared.file_systems.discard(number)
        if not shared.file_systems:
            del connections[at]
            with suppress(EntrepotError):
                await (await shared.opening).close()


async def _connect(at: Path | Endpoint) -> Connection:
    return await Site.open(at, "client") if isinstance(at, Path) else await RpcClient.connect(at)


async def _close_at_loop_end(connections: _LoopConnections) -> AsyncGenerator[None, None]:
    """Close the connections when the loop closes its generators, the last moment at which it can run anything."""
    try:
        yield
    finally:
        _connections.pop(asyncio.get_running_loop(), None)
        with suppress(TimeoutError):
            async with asyncio.timeout(connections.leave_seconds):
                for shared in list(connections.values()):
                    if (connection := shared.connection) is not None:
                        with suppress(EntrepotError, OSError):
                            await connection.close()


def _drop_closed_loops() -> None:
    """Drop the connections of loops that were closed without closing their generators: they cannot run anything."""
    for loop in [ref() for ref in _connections.keyrefs()]:
        if loop is not None and loop.is_closed():
            for shared in (_connections.pop(loop, None) or {}).values():
                if isinstance(connection := shared.connection, RpcClient):
                    connection.detach()


async def _end_sessions(connections: _LoopConnections) -> None:
    for shared in list(connections.values()):
        if (connection := shared.connection) is not None:
            with suppress(EntrepotError, OSError):
                await connection.end_session()


def _at_exit() -> None:
    for loop, connections in list(_connections.items()):
        if loop.is_running() and connections:
            with suppress(TimeoutError, RuntimeError):
                ending = asyncio.run_coroutine_threadsafe(_end_sessions(connections), loop)
                ending.result(connections.leave_seconds)
        else:  # its owner has stopped the loop: the operating system closes the connections
            _detach(connections)
    _connections.clear()


def _detach(connections: _LoopConnections) -> None:
    """Drop the connections to gateways without closing them, and keep references to them, so that they are not
    collected."""
    for shared in connections.values():
        if isinstance(connection := shared.connection, RpcClient):
            connection.detach()
            _inherited.append(connection)


def _in_child() -> None:
    global _connections  # noqa: PLW0603 (the child begins without connections)
    _inherited.append(_connections)
    _inherited.extend(list(_connections.items()))
    for connections in _connections.values():
        _detach(connections)
    _connections = WeakKeyDictionary()


def _at_exit_of_child(_: object) -> None:
    """A child of `multiprocessing` that was forked ends without `atexit`, but calls its own finalizers."""
    Finalize(None, _at_exit, exitpriority=0)


atexit.register(_at_exit)
register_after_fork(_at_exit, _at_exit_of_child)
os.register_at_fork(after_in_child=_in_child)
