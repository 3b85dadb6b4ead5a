"""Ends a committer that hangs and that no supervisor watches: one that a client of the library started.

A hung committer still listens (the kernel accepts connections for it) and still holds the journal's lock, so nobody
could take its place for good. Its clients ask it now and then for something that its loop answers at once, without a
session; where it stays silent for `hung_seconds` of the client's own ticks while the kernel lets it run, that client
says so and ends it by SIGKILL, and starts another.

Why that is safe, whoever does it and however many do:

- The process that is killed is the one at the other end of the connection (SO_PEERCRED), held by a pidfd since before
  it was asked. A connection that is still open says that this process still lives, so its id is not another's.
- Killing a committer is a crash, which its commits are made for (`gateway/journal/committing.py`): what was answered is
  durable, and what was not is sent again under the same slot and number.
- Two committers never commit at once: the kernel releases the journal's lock when the killed process is gone, not when
  the signal is sent, and each successor takes that lock before it opens the journal. Of several that are started one
  gets it; the others end. Fencing is not needed for this; it is about copies of the folder, which have a lock each.
- One that was only slow is killed as well as one that hangs. That costs a restart and no byte.

Where a supervisor serves the site, it watches its committer itself (`gateway/journal/heartbeat.py`).
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
    """Look every `silence_seconds` whether the committer hangs, and end one that does. Until cancelled."""
    while True:
        await timing.clock.sleep(timing.processes.silence_seconds)
        await end_if_hung(folder, journal_folder, timing)


async def end_if_hung(folder: Path, journal_folder: Path, timing: Timing) -> bool:
    """Ask who commits to *journal_folder*, of the site in *folder*. Returns False with its first word, where nobody
    listens or where a supervisor serves the site; and True once a committer that was silent for `hung_seconds` is
    gone."""
    if read_serving(folder) is not None:
        return False
    try:
        reader, writer = await asyncio.open_unix_connection(str(JournalPaths(journal_folder).socket()))
    except OSError:
        return False
    with closing(writer):
        pid = _peer(writer.get_extra_info("socket"))
        if pid in (0, os.getpid()):  # outside of our namespace of process ids; or this process commits itself
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
    """Whether nothing comes, not even the end of the connection, for `hung_seconds` of ticks."""
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
    """A pidfd; None where the process is gone, or the kernel has none."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _peer(connected: socket.socket) -> int:
    """The process that listens at the other end; 0 where it is outside of our namespace of process ids."""
    raw = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
    return int(_PEER_CREDENTIALS.unpack(raw)[0])
