"""Open files: fsspec's buffered files for blocking programs, and its streamed files for those that await.

A file that is open for reading stays one version: if the object is changed, reading fails. A file that is open for
writing becomes visible, complete, when it is closed, or when its transaction commits.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from fsspec.asyn import AbstractAsyncStreamedFile, sync
from fsspec.spec import AbstractBufferedFile

from gateway.posix.bodies import as_bytes_view
from gateway.posix.errnos import os_errors
from gateway.posix.fsspec.base import FileSystemBase
from gateway.posix.fsspec.info import Info
from gateway.posix.fsspec.multipart_writer import PART_BYTES, MultipartWriter

READ_BYTES = 1 << 20
"""The size of the read-ahead."""


class EntrepotFile(AbstractBufferedFile):  # type: ignore[misc]  # fsspec has no types
    """An open file. Created by `EntrepotFileSystem.open`."""

    def __init__(
        self,
        fs: FileSystemBase,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        writer: MultipartWriter | None = None,
        info: Info | None = None,
        **options: Any,
    ) -> None:
        self._writer = writer
        self._details = info
        self._pid = os.getpid()
        self._written = True
        reads = mode == "rb"
        super().__init__(fs, path, mode, block_size or (READ_BYTES if reads else PART_BYTES), **options)
        if writer is not None:
            self.blocksize = writer.part_bytes
        if mode == "ab":
            self.loc, tail = self._run(self._open_writer.begin_append)
            self._written = not self.loc
            self.buffer.write(tail)

    @property
    def _open_writer(self) -> MultipartWriter:
        assert self._writer is not None, "opened for reading"
        return self._writer

    def _run(self, work: Callable[..., Coroutine[Any, Any, Any]], *arguments: Any) -> Any:
        with os_errors(self.path):
            return sync(self.fs.loop, work, *arguments)

    # --- reading ------------------------------------------------------------------------------------------------------

    def _fetch_range(self, start: int, end: int) -> bytes:
        data: bytes = self.fs.cat_file(self.path, start=start, end=end, if_match=self.details["ETag"])
        return data

    # --- writing ------------------------------------------------------------------------------------------------------

    def write(self, data: Any) -> int:
        """Write *data*. A part that is full is being sent when this returns; if that fails, a later call raises."""
        if self._pid != os.getpid():
            raise ValueError(f"{self.path} was opened for writing before a fork: only the parent may write it")
        view = as_bytes_view(data)
        self._written = True
        if not len(view):
            return int(super().write(b""))
        for at in range(0, len(view), PART_BYTES):
            super().write(view[at : at + PART_BYTES])
        return len(view)

    def _upload_chunk(self, final: bool = False) -> bool:
        writer, data = self._open_writer, self.buffer.getvalue()
        if final and not self._written:  # opened for appending, but nothing was written: the file stays as it is
            self._run(writer.discard)
        elif final and self.autocommit and not writer.begun:
            self._run(writer.put, data)
        else:
            if data or not writer.begun:
                self._run(writer.add, data)
            if final and self.autocommit:
                self.commit()
        self.blocksize = writer.part_bytes
        return True

    def commit(self) -> None:
        """Make the written content visible. Called by fsspec's transactions."""
        if not self.closed and not self.forced:
            self.close()
        self._run(self._open_writer.commit)

    def discard(self) -> None:
        """Discard the written content, and close the file."""
        self.closed = True
        self.forced = True
        self._run(self._open_writer.discard)

    def close(self) -> None:
        if not self.closed and self.mode != "rb" and (self._pid != os.getpid() or sys.is_finalizing()):
            self.closed = True  # a forked child must not publish its parent's file
            return
        super().close()

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None or self.mode == "rb":
            self.close()
        elif not self.closed:  # an incomplete file is not published
            with suppress(OSError):
                self.discard()


class EntrepotStreamedFile(AbstractAsyncStreamedFile):  # type: ignore[misc]
    """An open file with coroutines as methods. Created by `EntrepotFileSystem.open_async`."""

    def __init__(
        self,
        fs: FileSystemBase,
        path: str,
        mode: str,
        block_size: int | None = None,
        writer: MultipartWriter | None = None,
        info: Info | None = None,
        **options: Any,
    ) -> None:
        self._writer = writer
        self._details = info
        super().__init__(fs, path, mode, block_size or PART_BYTES, cache_type="none", **options)
        if writer is not None:
            self.blocksize = writer.part_bytes

    async def append(self) -> None:
        """Begin at the end of the existing content."""
        assert self._writer is not None
        with os_errors(self.path):
            self.loc, tail = await self._writer.begin_append()
        self.buffer.write(tail)

    async def _fetch_range(self, start: int, end: int) -> bytes:
        data: bytes = await self.fs._cat_file(self.path, start=start, end=end, if_match=self.details["ETag"])  # noqa: SLF001
        return data

    async def write(self, data: Any) -> int:
        """Write *data*. A part that is full is being sent when this returns; if that fails, a later call raises."""
        view = as_bytes_view(data)
        for at in range(0, len(view), PART_BYTES):
            await super().write(view[at : at + PART_BYTES])
        return len(view)

    async def _upload_chunk(self, final: bool = False) -> bool:
        writer, data = self._writer, self.buffer.getvalue()
        assert writer is not None
        with os_errors(self.path):
            if final and not writer.begun:
                await writer.put(data)
                return True
            if data or not writer.begun:
                await writer.add(data)
            if final:
                await writer.commit()
        self.blocksize = writer.part_bytes
        return True

    async def discard(self) -> None:
        """Discard the written content, and close the file."""
        self.closed = True
        if self._writer is not None:
            with os_errors(self.path):
                await self._writer.discard()

    async def __aexit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None or self.mode == "rb":
            await self.close()
        elif not self.closed:
            with suppress(OSError):
                await self.discard()

    def __del__(self) -> None:
        """Nothing can be awaited here: a file that was not closed is not published, and its upload expires."""
        self.closed = True
