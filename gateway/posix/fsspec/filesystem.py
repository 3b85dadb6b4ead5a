"""`entrepot://bucket/key`: the file system, which fsspec finds by its entry point."""

from __future__ import annotations

import errno
import os
from typing import Any

from gateway.engine.types import NO_CONDITIONS
from gateway.posix.fsspec.base import make_meta
from gateway.posix.fsspec.data_ops import conditions_of
from gateway.posix.fsspec.files import EntrepotFile, EntrepotStreamedFile
from gateway.posix.fsspec.multipart_writer import PART_BYTES, MultipartWriter
from gateway.posix.fsspec.namespace_ops import NamespaceOps


class EntrepotFileSystem(NamespaceOps):
    """An Entrepot site as a file system of fsspec. In process, it reads the site's journal and blocks itself, and sends
    changes to the site's committer, which it starts if none runs. Over HTTP, it uses a gateway.

    Paths are `bucket/key`, as in S3. A write that has returned is durable and visible to every other client. A file
    appears complete. Errors are those of the operating system (`FileNotFoundError`, `PermissionError`, …). A file
    system may be pickled, and used in a forked child."""

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: dict[str, Any] | None = None,
        content_type: str | None = None,
        metadata: dict[str, str] | None = None,
        **options: Any,
    ) -> EntrepotFile:
        """Open a file to read ("rb"), write ("wb"), create ("xb") or append to ("ab")."""
        _check_block_size(block_size)
        writer = None
        if mode == "rb":
            info = self.info(path, refresh=True)
            options["size"] = _size_of(info)
        else:
            info = None
            if mode == "xb" and self.exists(path):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            writer = self._make_writer(path, mode, block_size, content_type, metadata)
        return EntrepotFile(
            self, path, mode, block_size, writer, info, autocommit=autocommit, cache_options=cache_options, **options
        )

    async def open_async(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        content_type: str | None = None,
        metadata: dict[str, str] | None = None,
        **options: Any,
    ) -> EntrepotStreamedFile:
        """Like `open`, but `read`, `write` and `close` of the file are coroutines."""
        _check_block_size(block_size)
        path = self._strip_protocol(path)
        if mode == "rb":
            info = await self._info(path, refresh=True)
            _size_of(info)
            return EntrepotStreamedFile(self, path, mode, block_size, None, info, **options)
        if mode == "xb" and await self._exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        writer = self._make_writer(path, mode, block_size, content_type, metadata)
        file = EntrepotStreamedFile(self, path, "ab" if mode == "ab" else "wb", block_size, writer, **options)
        if mode == "ab":
            await file.append()
        return file

    def _make_writer(
        self,
        path: str,
        mode: str,
        block_size: int | None,
        content_type: str | None,
        metadata: dict[str, str] | None,
    ) -> MultipartWriter:
        if mode not in ("wb", "xb", "ab"):
            raise ValueError(f"mode must be rb, wb, xb or ab, not {mode}")
        conditions = conditions_of("create") if mode == "xb" else NO_CONDITIONS
        parsed = self._parse_in_bucket(path)
        return MultipartWriter(
            self._connect, parsed, make_meta(content_type, metadata), conditions, block_size or PART_BYTES
        )


def _check_block_size(block_size: int | None) -> None:
    if block_size is not None and block_size < 0:
        raise ValueError(f"block_size must be a number of bytes, or 0 for the default, not {block_size}")


def _size_of(info: dict[str, Any]) -> int:
    if info["type"] == "directory":
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), info["name"])
    return int(info["size"])
