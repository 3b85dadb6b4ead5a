"""Which file system, and which boot of which machine, a journal is used on.

**What equal whereabouts prove.** A process that used this journal under the same whereabouts ran on this very boot of
this machine, and its committer held the `flock` of the same inode. If that committer were still alive, its file system
would still be mounted, so no other file could have this device and inode number, and the lock could not be ours. So
whoever holds the lock and finds the whereabouts of the last start unchanged knows that no process of an earlier start
commits any more. A copied folder has other inodes, a snapshot another device, a cloned or restored machine another
boot id; then nothing is known of the processes that used the original.

What it does not cover is a machine that was cloned together with its memory, running processes included.
"""

from __future__ import annotations

import os
from hashlib import blake2b
from pathlib import Path

from gateway.journal.paths import JournalPaths

FORK_PIN = "fork"
"""Pins whose name begins so say that another copy of this journal may go on; so long nothing goes that it may name."""
FORK_GRACE_SECONDS = 86_400.0
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def whereabouts(paths: JournalPaths, boot_id: Path = BOOT_ID) -> str:
    """Hex digits, or empty where it cannot be told: then it equals no other. For who holds the lock of *paths*."""
    try:
        told = [boot_id.read_bytes().strip()]
        for path in (paths.lock, paths.database):
            found = os.stat(path)
            told.append(b"%d:%d" % (found.st_dev, found.st_ino))
    except OSError:
        return ""
    return blake2b(b" ".join(told), digest_size=16).hexdigest()
