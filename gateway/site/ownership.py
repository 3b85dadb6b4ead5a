"""Refuses root at a site of another user: the site's owner could not read the files that root creates there."""

from __future__ import annotations

import os
import pwd
import tempfile
from pathlib import Path

from gateway.config import Config
from gateway.errors import Misconfigured
from gateway.journal.paths import JournalPaths
from gateway.site.paths import journal_folder

ROOT = 0


def require_owner(folder: Path, config: Config) -> None:
    """Raise `Misconfigured`, with the owner's name, if this process is root and the site belongs to another user.

    A new master key, a rewritten pack or the folder of a lock would belong to root, and the site's own processes would
    fail over it. Other users need no check: the kernel refuses them. The owner of the site is the owner of the
    journal's database, since anybody may have edited the config, and a mounted volume's root may belong to anybody."""
    if os.geteuid() != ROOT:
        return
    database = JournalPaths(journal_folder(folder, config)).database
    try:
        owner = database.stat().st_uid
        if owner == ROOT or owner == _owner_of_new_file(database.parent):
            return
    except OSError:
        return  # opening the journal reports the reason
    user = _name(owner)
    raise Misconfigured(
        f"{folder} belongs to user {user}: do this as that user (`sudo -u '{user}' …`), who could not read files that "
        "root creates there"
    )


def _owner_of_new_file(folder: Path) -> int:
    """Return the owner of a file that this process creates in *folder*: some mounts map all files to one user."""
    with tempfile.TemporaryFile(dir=folder) as file:
        return os.fstat(file.fileno()).st_uid


def _name(uid: int) -> str:
    """Return the name of a user; `#NUMBER`, which sudo accepts as well, if it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"#{uid}"
