"""Named points between two steps, at which a test has a process die, fail or wait.

`ENTREPOT_FAILPOINTS` in the environment arms some: `NAME=ACTION` or `NAME=ACTION@N`, several with `;` between. The
action comes at the Nth time (the first, where none is given) that this process reaches the point:

    kill       SIGKILL to itself, as the kernel or an operator would
    raise      an `OSError`, once
    sleep      stand still for two seconds, event loop and all, once
    hang       stand still for good, as a deadlock would have it

Where `ENTREPOT_FAILPOINTS_FROM` names a file, nothing counts before that file is there; so a test can start a site,
and arm it then. What is done is said on standard error first. Without the variable `reach` is an empty function, bound
when this module is imported: a point costs one call.
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
    "pack-stored": "A pack's bytes are durable; those who have objects in it have sent no command.",
    "block-sealed": "A block of one body is sealed and stored nowhere.",
    "block-stored": "A block's bytes are durable; its body is not all there, or its command not sent.",
    "command-ready": "The front desk has everything for a command and has not sent it.",
    "command-answered": "The committer has answered a command; the client has heard nothing.",
    # the committer, on the way of a batch
    "batch-prepared": "A batch has run in memory; nothing of it is written.",
    "batch-written": "The rows and records of a batch are in the transaction, which is not committed.",
    "batch-durable": "A batch is durable; nobody was answered.",
    "batch-answered": "The answers of a batch were handed to the connections.",
    "checkpointed": "What was in the WAL stands in the file.",
    "token-drawn": "A committer's fencing token is durable; no backend bears it, and nobody was listened to.",
    "session-opened": "A session's opening is durable; its client does not know it yet.",
    "session-ended": "A session's end is durable; its horizon and its slots still stand.",
    # the keeper
    "backend-stamped": "A backend bears the token of the committer that started last; others may not yet.",
    "takedown-ready": "A slice of what was let go of is chosen, and not taken apart.",
    "takedown-done": "A slice was taken apart; the blocks that died by it are all there.",
    "uploads-ready": "Uploads of a bucket that is gone are chosen, and not cut off.",
    "parts-ready": "Parts of an ended upload are chosen, and not let go of.",
    "dead-deleted": "Dead blocks' bytes are gone, their rows still there.",
    "dead-forgotten": "Dead blocks' rows are gone as well.",
    "session-listed": "What an ended session left unnamed is deleted; that it was swept is not recorded.",
    "compaction-stored": "What lives in mostly dead packs is stored in a new one, which no row names.",
    "compaction-named": "The journal names the new pack; no extent has moved there.",
    "compaction-confirmed": "Those that should hold the new pack were asked for it again; no extent has moved.",
    "compaction-moved": "Some extents lie in the new pack; old packs without extents are dead, and there.",
    "copies-begun": "The journal says where copies of a block are going to be; they are not there.",
    "copies-put": "They are there, confirmed; the block's set does not name them.",
    "copies-confirmed": "Those that should hold a block were asked for it again; its set names the old holders, too.",
    "copies-settled": "The block's set is what it should be; bytes of it still lie where it was.",
    "strays-deleted": "Those bytes are gone, the block's row of work is not.",
    # init, keys rotate, backup, restore
    "init-marked": "The folder bears the mark of a site that is not finished.",
    "init-configured": "The config is written.",
    "init-keyed": "The master key is written.",
    "init-founded": "The journal holds the site and its tenant.",
    "init-named": "A backend that the config names has an id in the journal; its place is not claimed.",
    "init-claimed": "Its place bears the site's marker; the journal does not know the set that says so.",
    "init-ringed": "The tenant has its first ring key.",
    "init-secret": "The root user's secret is in its file, and the user not in the journal.",
    "init-rooted": "The root user is in the journal.",
    "rotate-added": "The new master key is in its file; nothing is wrapped under it.",
    "rotate-half": "The ring keys are wrapped anew, the users' secrets not.",
    "backup-pinned": "The blocks that a backup will name are pinned; nothing is copied.",
    "backup-copied": "The journal is copied; there is no manifest.",
    "backup-told": "The manifest is written, the config is not.",
    "restore-made": "The journal stands again, in a new incarnation; no backend is claimed.",
    "takeover-pinned": "What the other copy of a site's folder names is pinned; its claim has not ended.",
    "takeover-drawn": "Its claim has ended, and this folder has a token; the backends still bear the other one's.",
    # the local backend (`backends.crash_points`)
    "log-written": "A group of small values is in an intake log, not synced.",
    "log-durable": "It is durable there; its files are not made.",
    "files-made": "Its files stand under their names, unsynced; nobody was answered.",
    "log-superseded": "All files of an intake log are durable; it still has its records.",
    "log-reset": "An intake log is empty again.",
    "file-written": "A large value is durable under a temporary name.",
    "file-placed": "It has its own name, which is not durable.",
    "file-removed": "A value's file is gone; its folders may be empty.",
}


class _Armed(NamedTuple):
    action: str
    at: int


def _nothing(point: str) -> None:
    """No point is armed."""


class _Watch:
    """What is armed in this process, and how often each point was reached."""

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
    """What *text*, as the variable holds it, arms. Raises `ValueError` with a sentence."""
    armed: dict[str, _Armed] = {}
    for each in filter(None, (part.strip() for part in text.split(";"))):
        name, is_there, action = each.partition("=")
        action, _, at = action.partition("@")
        if name not in POINTS:
            raise ValueError(f"there is no failpoint {name!r}; there are {', '.join(POINTS)}")
        if not is_there or action not in {"kill", "raise", "sleep", "hang"}:
            raise ValueError(f"{each!r}: the action is kill, raise, sleep or hang")
        if at and not (at.isdecimal() and int(at)):
            raise ValueError(f"{each!r}: behind the @ stands a number from 1 on")
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
"""Say that the process stands at this point of `POINTS`."""
