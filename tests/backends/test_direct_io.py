"""Large files are written past the page cache, where the file system takes part."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backends.local import direct_io
from backends.local.direct_io import ALIGNED_BYTES, STAGE_BYTES, DirectWriter
from backends.local.files import DIRECT_BYTES, Root


def _is_cached(path: Path) -> bool:
    """Whether the page cache holds any page of a file, by mincore(2). To read with RWF_NOWAIT would not tell: it starts
    to read ahead, and on a quick disk it then returns what it has just fetched."""
    pages = (ctypes.c_ubyte * -(-path.stat().st_size // mmap.PAGESIZE))()
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE) as memory:
        first = ctypes.c_char.from_buffer(memory)
        result = ctypes.CDLL(None).mincore(ctypes.byref(first), ctypes.c_size_t(len(memory)), pages)
        del first  # a map with an exported pointer cannot be closed
    assert result == 0
    return any(page & 1 for page in pages)


SIZES = st.one_of(
    st.integers(1, 3 * STAGE_BYTES),
    st.builds(
        lambda stages, over: max(1, stages * STAGE_BYTES + over),
        st.integers(0, 3),
        st.sampled_from([-ALIGNED_BYTES, -1, 0, 1, ALIGNED_BYTES - 1, ALIGNED_BYTES]),
    ),
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=st.lists(SIZES, min_size=1, max_size=3))
def test_what_was_written_directly_is_what_is_read_whatever_its_length(tmp_path: Path, sizes: list[int]) -> None:
    value = [os.urandom(size) for size in sizes]
    path = tmp_path / "value"
    fd = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
    try:
        assert DirectWriter().write(fd, value), "this file system has no O_DIRECT: run the tests on one that has"
    finally:
        os.close(fd)
    assert path.read_bytes() == b"".join(value)


def test_a_large_value_does_not_push_others_out_of_the_page_cache(tmp_path: Path) -> None:
    root = Root(str(tmp_path), "local")
    value = os.urandom(DIRECT_BYTES)
    root.write("synced", [value], sync=True)
    root.write("left-to-the-kernel", [value], sync=False)
    assert not _is_cached(tmp_path / "synced")
    assert _is_cached(tmp_path / "left-to-the-kernel")
    assert (tmp_path / "synced").read_bytes() == value
    root.close()


@pytest.mark.parametrize("refused", ["the flag", "a write", "a later write"])
def test_a_file_system_that_refuses_is_written_to_through_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    root = Root(str(tmp_path), "local")
    value = os.urandom(3 * STAGE_BYTES + 17)
    calls = iter(range(100))
    real = os.pwritev

    real_fcntl = fcntl.fcntl

    def refuse(*arguments: object) -> int:
        raise OSError(errno.EINVAL, "Invalid argument")

    def refuse_flag(fd: int, command: int, flags: int = 0) -> int:
        return refuse() if command == fcntl.F_SETFL else real_fcntl(fd, command, flags)

    def refuse_direct(fd: int, data: tuple[memoryview], at: int) -> int:
        is_direct = real_fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT
        if is_direct and next(calls) >= (1 if refused == "a later write" else 0):
            refuse()
        return real(fd, data, at)

    with monkeypatch.context() as patched:
        if refused == "the flag":
            patched.setattr(direct_io.fcntl, "fcntl", refuse_flag)
        else:
            patched.setattr(direct_io.os, "pwritev", refuse_direct)
        root.write("first", [value], sync=True)
        root.write("second", [value], sync=True)
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes() == value
    root.close()


def test_a_short_write_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwritev
    monkeypatch.setattr(
        direct_io.os, "pwritev", lambda fd, data, at: real(fd, (data[0][: max(4096, len(data[0]) // 2)],), at)
    )
    root = Root(str(tmp_path), "local")
    value = os.urandom(STAGE_BYTES + 5_000)
    root.write("value", [value], sync=True)
    assert (tmp_path / "value").read_bytes() == value
    root.close()


def test_a_full_disk_is_said_and_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, data: tuple[memoryview], at: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    root = Root(str(tmp_path), "local")
    monkeypatch.setattr(direct_io.os, "pwritev", full)
    with pytest.raises(OSError, match="No space left"):
        root.write("value", [bytes(DIRECT_BYTES)], sync=True)
    assert not (tmp_path / "value").exists()
    root.close()
