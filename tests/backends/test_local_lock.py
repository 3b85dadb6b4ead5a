"""The lock on a file of the control folder: it keeps others out, and is released whoever has inherited its file."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

import pytest

from backends.local.files import Root

LOCK = "a.lock"


def _is_free(folder: Path) -> bool:
    """Whether another open file could take the lock now."""
    fd = os.open(folder / LOCK, os.O_RDWR)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True


@pytest.mark.parametrize("ends", ["normally", "with an error"])
def test_a_lock_that_a_forked_child_inherited_is_free_once_its_holder_releases_it(tmp_path: Path, ends: str) -> None:
    root = Root(str(tmp_path), "local")
    wait, go = os.pipe()
    with suppress(ZeroDivisionError), root.locked(LOCK):
        child = os.fork()
        if not child:
            os.close(go)
            os.read(wait, 1)  # lives until the parent has closed its end
            os._exit(0)
        assert not _is_free(tmp_path), "the holder does not hold it"
        if ends == "with an error":
            _ = 1 / 0
    try:
        assert _is_free(tmp_path), "the child that lives on keeps the lock"
    finally:
        os.close(go)
        os.waitpid(child, 0)
        os.close(wait)
        root.close()
