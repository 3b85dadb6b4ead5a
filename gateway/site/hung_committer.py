"""Ends a hung committer that no supervisor watches: one that a client of the library started.

A hung committer still listens (the kernel accepts connections for it) and still holds the journal's lock, so no other
committer could ever replace it. So each client now and then sends it a request that needs no session and that its event
loop answers at once. If no answer comes for `hung_seconds` of the client's own ticks, although the kernel lets the
committer run, the client logs that, kills the committer with SIGKILL, and starts another.

Why this is safe, whichever client does it, and also if several clients do:

- The client kills exactly the process at the other end of its connection (SO_PEERCRED). It opens a pidfd of that
  process before it sends the request. While the connection is open the process lives, so its id cannot belong to
  another one.
- A kill is a crash, which commits survive (`gateway/journal/committing.py`): commands that were answered are durable,
  and clients send the others again under the same slot and number.
- Two committers never commit at once. The kernel releases the journal's lock when the killed process is gone, not when
  the signal is sent, and each successor takes that lock before it opens the journal. If several successors start, one
  gets the lock and the others end. Fencing is not needed for this: it is about copies of the folder, each of which has
  a lock of its own.
- A committer that is only slow may be killed, too. That costs a restart and loses nothing.

A supervisor that serves the site watches its committer itself (`gateway/journal/heartbeat.py`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import struct
from contextlib import closing, suppress
from pathlib import Path

from gateway.journal.heartbeat import Heartbeat, is_suspended
from gateway.journal.paths import JournalPaths
from gateway.journal.wire import Kind, frame
from gateway.site.locks import read_serving
from gateway.timing import Timing

_PEER_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid (unix(7))

_log = logging.getLogger(__name__)


async def watch_for_hang(folder: Path, journal_folder: Path, timing: Timing) -> None:
    """Check every `silence_seconds` whether the committer hangs, and kill it if it does. Runs until cancelled."""
    while True:
        await timing.clock.sleep(timing.processes.silence_seconds)
        await end_if_hung(folder, journal_folder, timing)


async def end_if_hung(folder: Path, journal_folder: Path, timing: Timing) -> bool:
    """Send a request to the committer of *journal_folder*, of the site in *folder*, and kill it if it stays silent.

    Returns True once a committer that was silent for `hung_seconds` is gone. Returns False as soon as the committer
    answers, and if nobody listens or a supervisor serves the site."""
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
            return await _end_if_silent(reader, writer, pid, process, journal_folder, timing)
        finally:
            os.close(process)


async def _end_if_silent(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    pid: int,
    process: int,
    journal_folder: Path,
    timing: Timing,
) -> bool:
    writer.write(frame(Kind.FLOORS, 1, False))
    if not await _is_silent(reader, pid, timing):
        return False
    _log.warning(
        "the committer of %s (process %d) has not answered for more than %g s; it is killed, and another one started",
        journal_folder,
        pid,
        timing.processes.hung_seconds,
    )
    signal.pidfd_send_signal(process, signal.SIGKILL)
    with suppress(OSError):
        await reader.read()  # to the end: the kernel closes the connection when the process is gone
    return True


async def _is_silent(reader: asyncio.StreamReader, pid: int, timing: Timing) -> bool:
    """Whether *reader* gets nothing, not even the end of the connection, for `hung_seconds` of ticks."""
    heartbeat, times = Heartbeat(timing.processes), timing.processes
    word = asyncio.create_task(reader.read(1))
    try:
        while not heartbeat.hangs(ready=True):
            tick = asyncio.create_task(timing.clock.sleep(times.report_seconds))
            await asyncio.wait((word, tick), return_when=asyncio.FIRST_COMPLETED)
            if word.done():
                tick.cancel()
                return False
            heartbeat.tick(suspended=is_suspended(pid))
        return not word.done()
    finally:
        word.cancel()
        with suppress(asyncio.CancelledError, OSError):
            await word


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
