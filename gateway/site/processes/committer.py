"""The committer's process, in its two lives: under the supervisor, and started by a client that found nobody.

Under the supervisor it stands by while somebody else commits (a client's committer that still has work), and takes
over when that one is gone. One that a client started ends when that client has: at once if a supervisor's stands by,
otherwise when no other session needs it.
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
from gateway.site.processes.child import Child, run_child
from gateway.site.processes.control_channel import CONTROL_FD
from gateway.site.serve_lock import read_serving
from gateway.timing import Timing, timing_from_environment

SESSIONS = gauge("entrepot_journal_sessions", "Sessions with the committer.")


async def commit(child: Child) -> None:
    """Be the site's committer, under the supervisor."""
    paths = JournalPaths(journal_folder(child.folder, child.config))
    with ExitStack() as held:
        if not await _own(held, paths, child):
            return
        store = open_store(paths, child.timing)
        held.callback(store.close)
        server = Server(store, COMMANDS, paths, _settings(child.config, child.timing))
        child.before_report = lambda: SESSIONS.set(len(server.leases))
        stop = asyncio.Event()
        waiting = asyncio.create_task(_until_unneeded(child, server, stop))
        running = asyncio.create_task(server.run(stop))
        await _until_listening(paths, running, child.timing)
        if not running.done():
            child.ready()
        await running
        waiting.cancel()


async def _until_unneeded(child: Child, server: Server, stop: asyncio.Event) -> None:
    """Set *stop* when told to stop; when orphaned, only once the workers, which have heard of it as well, are done
    with their last requests, or the next supervisor's committer stands by."""
    await child.stopping.wait()
    clock, times = child.timing.clock, child.timing.committers
    deadline = clock.monotonic() + child.config.server.stop_seconds
    while child.orphaned and len(server.leases) and clock.monotonic() < deadline:
        serving = read_serving(child.folder)
        if serving is not None and serving["pid"] != child.supervisor:  # which may still be about to let go of its lock
            break
        await clock.sleep(times.stand_by_seconds)
    stop.set()


async def _own(held: ExitStack, paths: JournalPaths, child: Child) -> bool:
    """Take the lock, as soon as nobody else has it. Returns False if told to stop before. Raises `Misconfigured` where
    there is no journal."""
    told = False
    while not child.stopping.is_set():
        check_folder(paths)
        try:
            held.enter_context(hold_lock(paths))
        except Misconfigured as busy:
            if not told:
                child.log(INFO, "standing by", why=str(busy))
                child.ready(standing_by=True)
            told = True
            await child.timing.clock.sleep(child.timing.committers.stand_by_seconds)
        else:
            return True
    return False


async def _until_listening(paths: JournalPaths, running: asyncio.Task[None], timing: Timing) -> None:
    while not running.done() and not paths.socket().exists():
        await timing.clock.sleep(timing.committers.listening_seconds)


def commit_for_client(folder: Path) -> None:
    """Be the committer for the client that started this process, whose end of the pipe is our standard input."""
    import uvloop

    timing, config = timing_from_environment(), load_active(folder)
    paths = JournalPaths(journal_folder(folder, config))
    check_folder(paths)
    with ExitStack() as held:
        try:
            held.enter_context(hold_lock(paths))
        except Misconfigured:
            return  # somebody else was faster, and serves our client as well
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
    gone = asyncio.Event()
    asyncio.get_running_loop().add_reader(0, _at_end, gone)
    await gone.wait()
    while len(server.leases) and read_serving(folder) is None:
        await timing.clock.sleep(timing.committers.stand_by_seconds)
    stop.set()


def _at_end(gone: asyncio.Event) -> None:
    if not os.read(0, 64):
        asyncio.get_running_loop().remove_reader(0)
        gone.set()


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
    os.umask(0o077)
    if CONTROL_FD in os.environ:
        run_child(commit)
    try:
        commit_for_client(Path(sys.argv[1]))
    except EntrepotError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
