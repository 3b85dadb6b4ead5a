"""Failpoints: named points between two steps, at which a test makes a process die, fail or wait.

The environment variable `ENTREPOT_FAILPOINTS` arms points: `NAME=ACTION` or `NAME=ACTION@N`, separated by `;`. The
action is taken when the process reaches the point for the Nth time (the first time, if N is not given):

    kill       the process sends SIGKILL to itself
    raise      an `OSError` is raised
    sleep      the thread, and with it the event loop, sleeps for two seconds
    hang       the thread sleeps forever, like a deadlock

If `ENTREPOT_FAILPOINTS_FROM` names a file, no point counts before that file exists; so a test can start a site first
and arm its points later. The process reports the action on standard error before it takes it. Without the variable,
`reach` is an empty function, bound when this module is imported: a point costs one call.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

from backends import crash_points
from gateway.timing import timing_from_environment

VARIABLE = "ENTREPOT_FAILPOINTS"
FROM_VARIABLE = "ENTREPOT_FAILPOINTS_FROM"

POINTS = {
    # a worker, on the way of a write
    "pack-sealed": "A pack is sealed and stored nowhere.",
    "pack-stored": "A pack's bytes are durable, or attached to commands; no command that names it was sent.",
    "block-sealed": "A block of one body is sealed and stored nowhere.",
    "block-stored": "A block's bytes are durable; its body is not all there, or its command not sent.",
    "command-ready": "The engine has everything for a command and has not sent it.",
    "command-answered": "The committer has answered a command; the client was not answered.",
    # the committer, on the way of a batch
    "batch-prepared": "A batch has run in memory; nothing of it is written.",
    "batch-written": "The rows and records of a batch are in the transaction, which is not committed.",
    "batch-durable": "A batch is durable; nobody was answered.",
    "batch-answered": "The answers of a batch were handed to the connections.",
    "checkpointed": "The content of SQLite's WAL was copied into the database file.",
    "token-drawn": "A committer's fencing token is durable; no backend has it, and the committer does not listen yet.",
    "session-opened": "A session's opening is durable; its client does not know it yet.",
    "session-ended": "A session's end is durable; its horizon and its slots are still there.",
    # the keeper
    "backend-stamped": "A backend has the token of the committer that started last; others may not have it yet.",
    "inline-values-flushed": "Inline values are in files of their backend; their rows are still there.",
    "release-ready": "A slice of released content is chosen; its reference counts are not lowered.",
    "release-done": "The reference counts of a slice are lowered; the bytes of the blocks that died are still there.",
    "uploads-ready": "Uploads of a deleted bucket are chosen, and not ended.",
    "parts-ready": "Parts of an ended upload are chosen, and not released.",
    "dead-deleted": "The bytes of dead blocks are deleted; their rows are still there.",
    "dead-forgotten": "The rows of dead blocks are deleted as well.",
    "session-listed": "Unnamed blocks of an ended session are deleted; that is not recorded yet.",
    "compaction-stored": "The live extents of old packs are stored in a new pack, which no row names.",
    "compaction-named": "The journal names the new pack; no extent has moved there.",
    "compaction-confirmed": "The backends of the new pack have confirmed it again; no extent has moved.",
    "compaction-moved": "Some extents are in the new pack; old packs without extents are dead, not deleted.",
    "copies-begun": "The journal records where copies of a block will be made; they are not there.",
    "copies-put": "The copies are there and confirmed; the block's set does not name them.",
    "copies-confirmed": "The backends of a block have confirmed it again; its set names the old ones, too.",
    "holders-recorded": "The block's set names the new copies; old holders may be in it, too.",
    "old-holders-dropped": "The block's set is as desired; its bytes are still on the old backends.",
    "strays-deleted": "Those bytes are deleted; the block's row of work is still there.",
    # init, keys rotate, backup, restore
    "init-marked": "The folder has the mark of an unfinished site.",
    "init-configured": "The config is written.",
    "init-keyed": "The master key is written.",
    "init-founded": "The journal holds the site and its tenant.",
    "init-named": "A backend of the config has an id in the journal; it is not claimed.",
    "init-claimed": "The backend has the site's marker; the journal does not have the set that records it.",
    "init-ringed": "The tenant has its first ring key.",
    "init-secret": "The root user's secret is in its file; the user is not in the journal.",
    "init-rooted": "The root user is in the journal.",
    "rotate-added": "The new master key is in its file; no key is wrapped under it.",
    "rotate-half": "The ring keys are wrapped under the new master key; the users' secrets are not.",
    "backup-pinned": "The blocks that a backup will name are pinned; nothing is copied.",
    "backup-copied": "The journal is copied; there is no manifest.",
    "backup-told": "The manifest is written, the config is not.",
    "restore-made": "The journal is restored, in a new incarnation; no backend is claimed.",
    "takeover-pinned": "Blocks that the other copy of a site's folder names are pinned; its claim has not ended.",
    "takeover-drawn": "Its claim has ended, and this folder has a token; the backends still have the other's.",
    # the local backend (`backends.crash_points`)
    "log-written": "A group of small values is written to a write-ahead log, not synced.",
    "log-durable": "The group is durable in the log; its files are not made.",
    "files-made": "The files of the group have their names, unsynced; no put was answered.",
    "log-superseded": "All files of a write-ahead log are durable; the log still has its records.",
    "log-reset": "A write-ahead log was reset and is empty.",
    "file-written": "A large value is durable under a temporary name.",
    "file-placed": "The file has its final name, which is not durable.",
    "file-removed": "A value's file is deleted; its folders may be empty.",
}


class _Armed(NamedTuple):
    action: str
    at: int


def _nothing(point: str) -> None:
    """No point is armed."""


class _Watch:
    """The points that are armed in this process, and how often each was reached."""

    def __init__(self, armed: dict[str, _Armed], since: str) -> None:
        self._armed = armed
        self._since = since
        self._reached: dict[str, int] = {}

    def reach(self, point: str) -> None:
        armed = self._armed.get(point)
        if armed is None or (self._since and not os.path.exists(self._since)):
            return
        self._reached[point] = count = self._reached.get(point, 0) + 1
        if count == armed.at:
            self._act(point, armed.action)

    def _act(self, point: str, action: str) -> None:
        os.write(2, f"failpoint {point}: {action}, process {os.getpid()}\n".encode())
        match action:
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "raise":
                raise OSError(errno.EIO, f"failpoint {point}")
            case "sleep":
                time.sleep(timing_from_environment().failpoints.sleep_seconds)
            case "hang":
                seconds = timing_from_environment().failpoints.sleep_seconds
                while True:
                    time.sleep(seconds)


def parse(text: str) -> dict[str, _Armed]:
    """Parse the value of the variable. Raises `ValueError`, which names the wrong entry."""
    armed: dict[str, _Armed] = {}
    for each in filter(None, (part.strip() for part in text.split(";"))):
        name, is_there, action = each.partition("=")
        action, _, at = action.partition("@")
        if name not in POINTS:
            raise ValueError(f"there is no failpoint {name!r}; there are {', '.join(POINTS)}")
        if not is_there or action not in {"kill", "raise", "sleep", "hang"}:
            raise ValueError(f"{each!r}: the action is kill, raise, sleep or hang")
        if at and not (at.isdecimal() and int(at)):
            raise ValueError(f"{each!r}: after the @ a number from 1 on is needed")
        armed[name] = _Armed(action, int(at or 1))
    return armed


def _bound() -> Callable[[str], None]:
    text = os.environ.get(VARIABLE, "")
    if not text:
        return _nothing
    try:
        watch = _Watch(parse(text), os.environ.get(FROM_VARIABLE, ""))
    except ValueError as error:
        sys.exit(f"{VARIABLE}: {error}")
    crash_points.watch(watch.reach)
    return watch.reach


reach: Callable[[str], None] = _bound()
"""Report that the process has reached this point of `POINTS`."""
