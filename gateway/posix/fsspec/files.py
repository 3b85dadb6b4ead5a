"""Open files: fsspec's buffered ones for programs that block, its streamed ones for those that await.

A file that is read stays one version: what changes under it ends the reading. One that is written becomes visible,
whole, when it is closed; in a transaction, when that commits.
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
"""How far a file is read ahead."""


class EntrepotFile(AbstractBufferedFile):  # type: ignore[misc]  # fsspec has no types
    """An open file. Made by `EntrepotFileSystem.open`."""

    def __init__(
        self,
        fs: FileSystemBase,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        writing: MultipartWriter | None = None,
        info: Info | None = None,
        **options: Any,
    ) -> None:
        self._writing = writing
        self._details = info
        self._pid = os.getpid()
        self._touched = True
        reads = mode == "rb"
        super().__init__(fs, path, mode, block_size or (READ_BYTES if reads else PART_BYTES), **options)
        if writing is not None:
            self.blocksize = writing.part_bytes
        if mode == "ab":
            self.loc, tail = self._run(self._begun.begin_append)
            self._touched = not self.loc
            self.buffer.write(tail)

    @property
    def _begun(self) -> MultipartWriter:
        assert self._writing is not None, "opened for reading"
        return self._writing

    def _run(self, work: Callable[..., Coroutine[Any, Any, Any]], *arguments: Any) -> Any:
        with os_errors(self.path):
            return sync(self.fs.loop, work, *arguments)

    # --- reading ------------------------------------------------------------------------------------------------------

    def _fetch_range(self, start: int, end: int) -> bytes:
        found: bytes = self.fs.cat_file(self.path, start=start, end=end, if_match=self.details["ETag"])
        return found

    # --- writing ------------------------------------------------------------------------------------------------------

    def write(self, data: Any) -> int:
        """Take *data*. What fills a part is on its way when this returns, and raises later if it fails."""
        if self._pid != os.getpid():
            raise ValueError(f"{self.path} was opened for writing before a fork: it is its parent's to write")
        view = as_bytes_view(data)
        self._touched = True
        if not len(view):
            return int(super().write(b""))
        for at in range(0, len(view), PART_BYTES):
            super().write(view[at : at + PART_BYTES])
        return len(view)

    def _upload_chunk(self, final: bool = False) -> bool:
        writing, data = self._begun, self.buffer.getvalue()
        if final and not self._touched:  # opened for appending, and nothing was: it stays as it is
            self._run(writing.discard)
        elif final and self.autocommit and not writing.begun:
            self._run(writing.put, data)
        else:
            if data or not writing.begun:
                self._run(writing.add, data)
            if final and self.autocommit:
                self.commit()
        self.blocksize = writing.part_bytes
        return True

    def commit(self) -> None:
        """Make what was written visible; fsspec's transactions ask for it."""
        if not self.closed and not self.forced:
            self.close()
        self._run(self._begun.commit)

    def discard(self) -> None:
        """Throw away what was written. It is closed then."""
        self.closed = True
        self.forced = True
        self._run(self._begun.discard)

    def close(self) -> None:
        if not self.closed and self.mode != "rb" and (self._pid != os.getpid() or sys.is_finalizing()):
            self.closed = True  # a forked child has its parent's file by accident: nothing of it is its to publish
            return
        super().close()

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None or self.mode == "rb":
            self.close()
        elif not self.closed:  # what was not written to its end is not published
            with suppress(OSError):
                self.discard()


class EntrepotStreamedFile(AbstractAsyncStreamedFile):  # type: ignore[misc]
    """An open file whose methods are awaited. Made by `EntrepotFileSystem.open_async`."""

    def __init__(
        self,
        fs: FileSystemBase,
        path: str,
        mode: str,
        block_size: int | None = None,
        writing: MultipartWriter | None = None,
        info: Info | None = None,
        **options: Any,
    ) -> None:
        self._writing = writing
        self._details = info
        super().__init__(fs, path, mode, block_size or PART_BYTES, cache_type="none", **options)
        if writing is not None:
            self.blocksize = writing.part_bytes

    async def append(self) -> None:
        """Begin behind what stands there."""
        assert self._writing is not None
        with os_errors(self.path):
            self.loc, tail = await self._writing.begin_append()
        self.buffer.write(tail)

    async def _fetch_range(self, start: int, end: int) -> bytes:
        found: bytes = await self.fs._cat_file(self.path, start=start, end=end, if_match=self.details["ETag"])  # noqa: SLF001
        return found

    async def write(self, data: Any) -> int:
        """Take *data*. What fills a part is on its way when this returns, and raises later if it fails."""
        view = as_bytes_view(data)
        for at in range(0, len(view), PART_BYTES):
            await super().write(view[at : at + PART_BYTES])
        return len(view)

    async def _upload_chunk(self, final: bool = False) -> bool:
        writing, data = self._writing, self.buffer.getvalue()
        assert writing is not None
        with os_errors(self.path):
            if final and not writing.begun:
                await writing.put(data)
                return True
            if data or not writing.begun:
                await writing.add(data)
            if final:
                await writing.commit()
        self.blocksize = writing.part_bytes
        return True

    async def discard(self) -> None:
        """Throw away what was written. It is closed then."""
        self.closed = True
        if self._writing is not None:
            with os_errors(self.path):
                await self._writing.discard()

    async def __aexit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None or self.mode == "rb":
            await self.close()
        elif not self.closed:
            with suppress(OSError):
                await self.discard()

    def __del__(self) -> None:
        """Nobody can be awaited here: what was not closed is not published, and its upload expires."""
        self.closed = True
