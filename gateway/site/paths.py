"""Paths of a site's files below its folder, and the import path that its child processes need."""

from __future__ import annotations

import os
from pathlib import Path

import gateway
from gateway.config import Config

ROOT_SECRET = "root.secret"  # noqa: S105 (a file's name)
"""The file with the root user's first secret key. Only the owner of the site may read it."""
UNFINISHED = ".unfinished"
"""This file exists from the first step of `init` or `restore` to the last. While it exists, only the same command may
be run again. Its first line is that command; its second, if any, is what the site is made from."""


def journal_folder(folder: Path, config: Config) -> Path:
    """Return the folder of the journal of the site in *folder*."""
    return folder / config.journal.path


def master_key(folder: Path, config: Config) -> Path:
    """Return the path of the master key file of the site in *folder*."""
    return folder / config.sealing.master_key


def python_path() -> str:
    """Return a `PYTHONPATH` with which a child process imports the same code, whatever its working directory."""
    root = str(Path(gateway.__file__).parents[1])
    inherited = os.environ.get("PYTHONPATH")
    return f"{root}{os.pathsep}{inherited}" if inherited else root
