"""The whereabouts of a journal: a digest of the file system that it is on, and of this boot of this machine.

**What equal whereabouts prove.** A process that used this journal under the same whereabouts ran during this boot of
this machine, and its committer held the `flock` of the same inode. If that committer were still alive, its file system
would still be mounted, so no other file could have this device and inode number, and this process could not have got
the lock. So if a process holds the lock, and the whereabouts are those of the last start, no process of an earlier
start commits any more. A copied folder has other inodes, a snapshot another device, a cloned or restored machine
another boot id. Then nothing is known about the processes that used the original.

This does not cover a machine that was cloned together with its memory, including running processes.
"""

from __future__ import annotations

import os
from hashlib import blake2b
from pathlib import Path

from gateway.journal.paths import JournalPaths

FORK_PIN = "fork"
"""Prefix of the names of pins that keep what another copy of this journal may name."""
RESTORE_PIN = f"{FORK_PIN} restore"
"""The name of the pin that keeps what the original of a restored site may have named after the backup."""
FORK_GRACE_SECONDS = 86_400.0
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def whereabouts(paths: JournalPaths, boot_id: Path = BOOT_ID) -> str:
    """Return the whereabouts as hex digits; empty if they are unknown, and then equal to no others. The caller holds
    the lock of *paths*."""
    try:
        facts = [boot_id.read_bytes().strip()]
        for path in (paths.lock, paths.database):
            status = os.stat(path)
            facts.append(b"%d:%d" % (status.st_dev, status.st_ino))
    except OSError:
        return ""
    return blake2b(b" ".join(facts), digest_size=16).hexdigest()
