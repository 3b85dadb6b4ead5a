"""The committer's process. A supervisor starts it, or a client that finds no committer.

Under a supervisor it waits while another committer (of a client that still works) holds the journal's lock, and takes
over when that one has ended. A committer that a client started ends after that client: at once if a supervisor's
committer waits for the lock, otherwise when no session is left.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import ExitStack
from pathlib import Path

from gateway.config import Config
from gateway.errors import EntrepotError, Misconfigured
from gateway.journal.lock import check_folder
from gateway.journal.paths import JournalPaths
from gateway.journal.server.server import CommitterSettings, Server, hold_lock, open_store
from gateway.metrics import gauge
from gateway.metrics.json_log import INFO
from gateway.site.active_config import load_active
from gateway.site.commands import COMMANDS, observe_commit
from gateway.site.paths import journal_folder
from gateway.site.processes.child import Child, Role, run_child
from gateway.site.processes.control_channel import CONTROL_FD
from gateway.site.serve_lock import read_serving
from gateway.site.storage.backend_trouble import BackendTrouble
from gateway.timing import Timing, timing_from_environment

SESSIONS = gauge("entrepot_journal_sessions", "Sessions with the committer.")


class CommitterRole(Role):
    """Commits for the site, under the supervisor."""

    def __init__(self) -> None:
        self._server: Server | None = None

    async def run(self, child: Child) -> None:
        paths = JournalPaths(journal_folder(child.folder, child.config))
        with ExitStack() as held:
            if not await _acquire_lock(held, paths, child):
                return
            store = open_store(paths, child.timing)
            held.callback(store.close)
            server = self._server = Server(store, COMMANDS, paths, _settings(child.config, child.timing))
            stop = asyncio.Event()
            waiting = asyncio.create_task(_until_unneeded(child, server, stop))
            running = asyncio.create_task(server.run(stop))
            await _until_listening(paths, running, child.timing)
            if not running.done():
                child.ready()
            await running
            waiting.cancel()

    def report(self) -> dict[str, BackendTrouble]:
        if self._server is not None:
            SESSIONS.set(len(self._server.leases))
        return {}


async def _until_unneeded(child: Child, server: Server, stop: asyncio.Event) -> None:
    """Set *stop* when this process is told to stop. If it is orphaned, it waits until the workers, which are orphaned
    too, have finished their last requests, or until the committer of the next supervisor waits for the lock."""
    await child.stopping.wait()
    clock, times = child.timing.clock, child.timing.committers
    deadline = clock.monotonic() + child.config.server.stop_seconds
    while child.orphaned and len(server.leases) and clock.monotonic() < deadline:
        serving = read_serving(child.folder)
        if (
            serving is not None and serving["pid"] != child.supervisor
        ):  # this supervisor may still hold its lock for a moment
            break
        await clock.sleep(times.stand_by_seconds)
    stop.set()


async def _acquire_lock(held: ExitStack, paths: JournalPaths, child: Child) -> bool:
    """Acquire the journal's lock, as soon as no other process holds it. Returns False if told to stop before that.

    Raises `Misconfigured` if there is no journal."""
    is_waiting = False
    while not child.stopping.is_set():
        check_folder(paths)
        try:
            held.enter_context(hold_lock(paths))
        except Misconfigured as busy:
            if not is_waiting:
                child.log(INFO, "standing by", why=str(busy))
                child.ready(standing_by=True)
            is_waiting = True
            await child.timing.clock.sleep(child.timing.committers.stand_by_seconds)
        else:
            return True
    return False


async def _until_listening(paths: JournalPaths, running: asyncio.Task[None], timing: Timing) -> None:
    while not running.done() and not paths.socket().exists():
        await timing.clock.sleep(timing.committers.listening_seconds)


def commit_for_client(folder: Path) -> None:
    """Commit for the client that started this process. Standard input is a pipe that ends when the client ends."""
    import uvloop

    timing, config = timing_from_environment(), load_active(folder)
    paths = JournalPaths(journal_folder(folder, config))
    check_folder(paths)
    with ExitStack() as held:
        try:
            held.enter_context(hold_lock(paths))
        except Misconfigured:
            return  # another committer was faster, and serves this client as well
        store = open_store(paths, timing)
        held.callback(store.close)
        settings = _settings(config, timing, timing.committers.lonely_seconds)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_for_client(Server(store, COMMANDS, paths, settings), folder, timing))


async def _for_client(server: Server, folder: Path, timing: Timing) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    watching = asyncio.create_task(_watch_client(server, folder, stop, timing))
    try:
        await server.run(stop)
    finally:
        watching.cancel()


async def _watch_client(server: Server, folder: Path, stop: asyncio.Event, timing: Timing) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(0, _at_end, ended)
    await ended.wait()
    while len(server.leases) and read_serving(folder) is None:
        await timing.clock.sleep(timing.committers.stand_by_seconds)
    stop.set()


def _at_end(ended: asyncio.Event) -> None:
    if not os.read(0, 64):
        asyncio.get_running_loop().remove_reader(0)
        ended.set()


def _settings(config: Config, timing: Timing, idle_exit_seconds: float | None = None) -> CommitterSettings:
    journal = config.journal
    return CommitterSettings(
        journal.lease_seconds,
        idle_exit_seconds,
        observe_commit,
        fork_grace_seconds=journal.fork_grace_hours * 3_600,
        timing=timing,
    )


def main() -> None:
    """Run the committer of a supervisor, if there is a control channel, or that of a client."""
    os.umask(0o077)
    if CONTROL_FD in os.environ:
        run_child(CommitterRole())
    try:
        commit_for_client(Path(sys.argv[1]))
    except EntrepotError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
