"""Small disks and read-only disks for tests, where this process may mount."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def mounted(at: Path, *arguments: str) -> Iterator[None]:
    """A mount for the length of a test; skips loudly where this process may not mount."""
    at.mkdir(exist_ok=True)
    done = subprocess.run(["mount", *arguments, str(at)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"NOT TESTED, for mounting is not permitted here: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(at)], check=True)
