"""Where everything of a site stands below its folder. Pure."""

from __future__ import annotations

from pathlib import Path

from gateway.config import Config

ROOT_SECRET = "root.secret"  # noqa: S105 (a file's name)
"""The root user's first secret key, readable by the owner alone, for whoever starts with this site."""
UNFINISHED = ".unfinished"
"""Stands there from the first step of `init` or `restore` to the last: then the same command may go on. Its first line
is the command, its second, if there is one, what the site is made from."""


def journal_folder(folder: Path, config: Config) -> Path:
    return folder / config.journal.path


def master_key(folder: Path, config: Config) -> Path:
    return folder / config.sealing.master_key
