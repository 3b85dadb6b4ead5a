"""Kills a hung committer that no supervisor watches: one that a client of the library started.

A hung committer still listens (the kernel accepts connections for it) and still holds the journal's lock, so no other
committer could ever replace it. So each client periodically sends it a request that needs no session and that its event
loop answers at once. If no answer comes for `hung_seconds` of the client's own ticks, although the kernel lets the
committer run, the client logs that, kills the committer with SIGKILL, and starts another.

Why this is safe, whichever client does it, and also if several clients do:

- The client kills exactly the process at the other end of its connection (SO_PEERCRED). It opens a pidfd of that
  process before it sends the request. While the connection is open the process lives, so its id cannot belong to
  another one.
- A kill is a crash, which commits survive (`gateway/journal/server/group_commit.py`): commands that were answered are
  durable, and clients send the others again under the same slot and number.
- Two committers never commit at once. The kernel releases the journal's lock when the killed process is gone, not when
  the signal is sent, and each successor takes that lock before it opens the journal. If several successors start, one
  gets the lock and the others end. Fencing is not needed for this: it is about copies of the folder, each of which has
  a lock of its own.
- A committer that is only slow may be killed, too. That costs a restart and loses nothing.

A committer that the kernel does not let run is left alone: somebody has stopped it, or it waits for a disk or a network
file system, and then a kill takes effect only when that wait ends. The client waits for such a committer for a bounded
time and then raises `CommitterGone`, with a message that says what an operator can do. The same holds for a committer
that may not be killed, since it belongs to another user, and for one that does not end although it was killed.

A supervisor that serves the site watches its committer itself (`gateway/journal/heartbeat.py`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import struct
from contextlib import closing
from pathlib import Path
from typing import Any

from gateway.errors import CommitterGone
from gateway.journal.heartbeat import SUSPENDED, Heartbeat, scheduler_state
from gateway.journal.paths import JournalPaths
from gateway.journal.wire import FrameKind, frame
from gateway.site.serve_lock import read_serving
from gateway.timing import Timing

_PEER_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid (unix(7))

_REASONS = {
    "T": "(process {pid}) is stopped: continue it (kill -CONT {pid}) or end it (kill -KILL {pid}), and try again",
    "t": "(process {pid}) is stopped by a debugger: continue it or end it (kill -KILL {pid}), and try again",
    "D": "(process {pid}) waits for a disk or a network file system: try again once that answers; until then it"
    " cannot be ended",
}
"""What an operator can do about a committer that does not run, by its state."""

_log = logging.getLogger(__name__)


async def watch_for_hang(folder: Path, journal_folder: Path, timing: Timing) -> None:
    """Check every `silence_seconds` whether the committer hangs, and kill it if it does. Runs until cancelled. A
    committer that hangs and cannot be killed is logged once, until the reason changes or the committer answers."""
    warned = ""
    while True:
        await timing.clock.sleep(timing.processes.silence_seconds)
        try:
            await end_if_hung(folder, journal_folder, timing)
            warned = ""
        except (CommitterGone, OSError) as error:
            why = str(error)
            if why != warned:
                _log.warning("the watch for a hung committer of %s: %s", journal_folder, why)
            warned = why


async def end_if_hung(folder: Path, journal_folder: Path, timing: Timing) -> bool:
    """Send a request to the committer of *journal_folder*, of the site in *folder*, and kill it if it stays silent.

    Returns True once a committer that was silent for `hung_seconds` is gone. Returns False as soon as the committer
    answers, and if nobody listens or a supervisor serves the site. Raises `CommitterGone` if the committer is silent
    and cannot be ended, and after twice `hung_seconds` if the kernel does not let it run: the message says why."""
    if read_serving(folder) is not None:
        return False
    try:
        reader, writer = await asyncio.open_unix_connection(str(JournalPaths(journal_folder).socket()))
    except OSError:
        return False
    with closing(writer):
        pid = _peer(writer.get_extra_info("socket"))
        if pid in (0, os.getpid()):  # in another pid namespace, or this process is the committer
            return False
        process = _open_process(pid)
        if process is None:
            return False
        try:
            writer.write(frame(FrameKind.HORIZONS, 1, False))
            if not await _is_silent(reader, pid, journal_folder, timing):
                return False
            await _end(reader, pid, process, journal_folder, timing)
            return True
        finally:
            os.close(process)


async def _end(reader: asyncio.StreamReader, pid: int, process: int, journal_folder: Path, timing: Timing) -> None:
    """Kill a committer and wait until it is gone. Raises `CommitterGone` if that fails."""
    hung = timing.processes.hung_seconds
    _log.warning(
        "the committer of %s (process %d) has not answered for more than %g s; it is killed, and another one started",
        journal_folder,
        pid,
        hung,
    )
    try:
        signal.pidfd_send_signal(process, signal.SIGKILL)
    except ProcessLookupError:
        pass  # another client has killed it
    except OSError as error:
        raise CommitterGone(
            f"the committer of {journal_folder} (process {pid}) does not answer, and this process may not kill it"
            f" ({error.strerror}): end it as the user that it belongs to (kill -KILL {pid})"
        ) from error
    if not await _ends(reader, timing):
        raise CommitterGone(
            f"the committer of {journal_folder} (process {pid}) was killed after {hung:g} s without an answer, but is"
            " not gone yet: it waits for a disk or a network file system. Another one is started once that answers"
        )


async def _ends(reader: asyncio.StreamReader, timing: Timing) -> bool:
    """Whether the other end of *reader* is closed, which the kernel does when the process is gone, within
    `hung_seconds`."""
    end = asyncio.create_task(reader.read())
    deadline = asyncio.create_task(timing.clock.sleep(timing.processes.hung_seconds))
    try:
        await asyncio.wait((end, deadline), return_when=asyncio.FIRST_COMPLETED)
        return end.done()
    finally:
        await _drop(end, deadline)


async def _is_silent(reader: asyncio.StreamReader, pid: int, journal_folder: Path, timing: Timing) -> bool:
    """Whether *reader* gets nothing, not even the end of the connection, for `hung_seconds` of ticks in which the
    kernel lets process *pid* run. Raises `CommitterGone` after twice as many ticks of any kind."""
    heartbeat, times = Heartbeat(timing.processes), timing.processes
    response = asyncio.create_task(reader.read(1))
    tick = asyncio.create_task(timing.clock.sleep(times.report_seconds))
    try:
        while True:
            await asyncio.wait((response, tick), return_when=asyncio.FIRST_COMPLETED)
            if response.done():
                return False
            state = scheduler_state(pid)
            heartbeat.tick(suspended=state in SUSPENDED)
            if state in SUSPENDED and heartbeat.silent_seconds >= 2 * times.hung_seconds:
                raise CommitterGone(f"the committer of {journal_folder} {_REASONS[state].format(pid=pid)}")
            if heartbeat.is_hung(ready=True):
                return True
            tick = asyncio.create_task(timing.clock.sleep(times.report_seconds))
    finally:
        await _drop(response, tick)


async def _drop(*tasks: asyncio.Task[Any]) -> None:
    """Cancel *tasks* and wait for them, whatever has become of them."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _open_process(pid: int) -> int | None:
    """A pidfd of process *pid*; None if the process is gone or the kernel has no pidfds."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _peer(connected: socket.socket) -> int:
    """The id of the process that listens at the other end; 0 if it is in another pid namespace."""
    raw = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
    return int(_PEER_CREDENTIALS.unpack(raw)[0])
