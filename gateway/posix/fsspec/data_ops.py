"""The operations that read and write content: values, ranges, local files."""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import stat
from collections.abc import Iterable
from contextlib import suppress
from operator import index
from pathlib import Path
from typing import Any

from fsspec.asyn import sync_wrapper
from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.utils import isfilelike, merge_offset_ranges

from gateway.engine.types import NO_CONDITIONS, ByteRange, Conditions, ObjectInfo, ObjectMeta, Opened
from gateway.errors import InvalidRange, NoSuchKey, PreconditionFailed
from gateway.posix.api import FileApi
from gateway.posix.bodies import FileBody, as_bytes_view, read_all, write_to_file
from gateway.posix.errnos import os_errors
from gateway.posix.fsspec.base import in_batches, make_meta, return_error
from gateway.posix.fsspec.listing_ops import ListingOps
from gateway.posix.fsspec.multipart_writer import MultipartWriter
from gateway.posix.metadata import META
from gateway.posix.paths import ObjectPath

SINGLE_BYTES = 1 << 30
"""Larger local files are stored in parts of half this size."""
OFFSET_MOST = (1 << 63) - 1
TRIES = 5
"""How often a read is repeated because the file was written between the look-up of its size and the read."""
_MUST_NOT_EXIST = Conditions(if_none_match=("*",))


class DataOps(ListingOps):
    """The part of `EntrepotFileSystem` that reads and writes whole files and ranges."""

    async def _cat_file(
        self, path: str, start: int | None = None, end: int | None = None, if_match: str | None = None, **options: Any
    ) -> bytes:
        """Return a file's bytes from *start* to *end*, as a slice: negative values count from the end.

        *if_match*: an ETag that the file must have; otherwise an `OSError` (ESTALE) is raised."""
        parsed, start, end = self._parse(path), _offset(start), _offset(end)
        conditions = NO_CONDITIONS if if_match is None else Conditions(if_match=(if_match,))
        with os_errors(path):
            api = await self._connect()
            if not parsed.key:
                raise await self._no_file_error(api, parsed, path)
            try:
                for _ in range(TRIES):
                    with suppress(_Changed):
                        opened = await _open_slice(api, parsed, start, end, conditions)
                        return b"" if opened is None else await read_all(opened)
            except NoSuchKey:
                raise await self._no_file_error(api, parsed, path) from None
        raise OSError(errno.ESTALE, "the file is changing too often", path)

    async def _cat(
        self, path: Any, recursive: bool = False, on_error: str = "raise", batch_size: int | None = None, **options: Any
    ) -> Any:
        """Return the content of one file, or of several by path; with *recursive*, of every file below."""
        if not recursive:
            return await super()._cat(path, on_error=on_error, batch_size=batch_size, **options)
        names = await self._files(path)
        reads = [self._cat_file(each, **options) for each in names]
        contents = await in_batches(
            reads if on_error == "raise" else map(return_error, reads), batch_size or self.batch_size
        )
        if not isinstance(path, list) and names == [self._strip_protocol(path)]:
            return contents[0]
        pairs = zip(names, contents, strict=True)
        return {name: data for name, data in pairs if on_error != "omit" or not isinstance(data, Exception)}

    async def _cat_ranges(
        self,
        paths: list[str],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        batch_size: int | None = None,
        on_error: str = "return",
        **options: Any,
    ) -> list[Any]:
        """Return ranges of files, read concurrently, each as in `cat_file`. *max_gap*: ranges of a file that are at
        most this many bytes apart are read together."""
        paths = self._strip_protocol(list(paths))
        starts, ends = _offsets(starts, len(paths)), _offsets(ends, len(paths))
        if max_gap is None or any((each or 0) < 0 for each in (*starts, *ends)):
            return list(await super()._cat_ranges(paths, starts, ends, None, batch_size, on_error, **options))
        ends = [None if end is None else max(start or 0, end) for start, end in zip(starts, ends, strict=True)]
        blocks = merge_offset_ranges(paths, starts, ends, max_gap=max_gap)
        contents = await super()._cat_ranges(*blocks, None, batch_size, on_error, **options)
        read: dict[str, list[tuple[int, int | None, Any]]] = {}
        for path, start, end, data in zip(*blocks, contents, strict=True):
            read.setdefault(path, []).append((start, end, data))
        return [_cut(read[path], *limits) for path, *limits in zip(paths, starts, ends, strict=True)]

    async def _pipe_file(
        self,
        path: str,
        value: Any,
        mode: str = "overwrite",
        content_type: str | None = None,
        metadata: dict[str, str] | None = None,
        **options: Any,
    ) -> None:
        """Store *value* as the file's content, durably. *mode* "create": raises `FileExistsError` if the file
        exists."""
        parsed, data = self._parse_in_bucket(path), as_bytes_view(value)
        with os_errors(path):
            await MultipartWriter(self._connect, parsed, make_meta(content_type, metadata), conditions_of(mode)).put(
                data
            )
        self.invalidate_cache(path)

    async def _put_file(
        self,
        lpath: Any,
        rpath: str,
        callback: Any = DEFAULT_CALLBACK,
        mode: str = "overwrite",
        content_type: str | None = None,
        metadata: dict[str, str] | None = None,
        **options: Any,
    ) -> None:
        """Store a local file, in pieces. For a local directory, an empty directory is created. *mode*: as in
        `pipe_file`."""
        if os.path.isdir(lpath):
            await self._makedirs(rpath, exist_ok=True)
            return
        meta = make_meta(content_type, metadata)
        writer = MultipartWriter(self._connect, self._parse_in_bucket(rpath), meta, conditions_of(mode))
        with os_errors(rpath):
            try:
                await _store_file(writer, lpath, callback)
            except BaseException:
                await writer.discard()
                raise
        self.invalidate_cache(rpath)

    async def _get_file(self, rpath: str, lpath: Any, callback: Any = DEFAULT_CALLBACK, **options: Any) -> None:
        """Write a file into a local one, in pieces. The local file appears complete, or not at all. For a directory, an
        empty local one is created. *lpath* may be an open file."""
        parsed = self._parse(rpath)
        with os_errors(rpath):
            api = await self._connect()
            try:
                if not parsed.key:
                    raise NoSuchKey(parsed.key)
                opened = await api.open(*parsed)
            except NoSuchKey:
                error = await self._no_file_error(api, parsed, rpath)
                if not isinstance(error, IsADirectoryError):
                    raise error from None
                Path(lpath).mkdir(parents=True, exist_ok=True)
                return
            callback.set_size(opened.length)
            if isfilelike(lpath):
                await write_to_file(opened, lpath, callback.relative_update)
            else:
                await _write_file(opened, os.fspath(lpath), callback)

    async def _touch(self, path: str, truncate: bool = True, **options: Any) -> None:
        """Create an empty file. Without *truncate*, an existing file keeps its content and gets a new time."""
        if truncate or not await self._exists(path):
            await self._pipe_file(path, b"", **options)
            return
        parsed = self._parse_in_bucket(path)
        with os_errors(path):
            api = await self._connect()
            try:
                await api.copy(*parsed, *parsed)
            except NoSuchKey:
                raise await self._no_file_error(api, parsed, path) from None
        self.invalidate_cache(path)

    async def _setxattr(self, path: str, **attributes: str | None) -> None:
        """Set entries of a file's `metadata`; None removes an entry. No content is copied."""
        parsed = self._parse_in_bucket(path)
        with os_errors(path):
            api = await self._connect()
            entry = await api.look(*parsed)
            if not isinstance(entry, ObjectInfo):
                raise await self._no_file_error(api, parsed, path)
            headers = dict(entry.headers)
            for name, value in attributes.items():
                headers.pop(f"{META}{name.lower()}", None)
                if value is not None:
                    headers[f"{META}{name.lower()}"] = str(value)
            await api.copy(*parsed, *parsed, ObjectMeta(headers), Conditions(if_match=(entry.etag,)))
        self.invalidate_cache(path)

    touch = sync_wrapper(_touch)
    setxattr = sync_wrapper(_setxattr)


def _offset(value: Any) -> int | None:
    """Convert any integer, also numpy's, to an offset, limited to the greatest one that a file can have."""
    return None if value is None else max(-OFFSET_MOST, min(index(value), OFFSET_MOST))


def _offsets(values: Any, count: int) -> list[int | None]:
    """Return an offset for each of *count* ranges, from a sequence or from one value for all."""
    return [_offset(each) for each in values] if isinstance(values, Iterable) else [_offset(values)] * count


class _Changed(Exception):
    """The file was changed between the look-up and the read."""


async def _open_slice(
    api: FileApi, parsed: ObjectPath, start: int | None, end: int | None, conditions: Conditions
) -> Opened | None:
    """Open the bytes of a Python slice; None if it is empty. Raises `_Changed` if the size had to be looked up first
    and the file has changed since."""
    if (start is None or start >= 0) and end is None:
        wanted = ByteRange(start, None) if start else None
    elif start is not None and start < 0 and end is None:
        wanted = ByteRange(None, -start)
    elif end is not None and end > (start or 0) >= 0:
        wanted = ByteRange(start or 0, end - 1)
    else:
        entry = await api.look(*parsed)
        if not isinstance(entry, ObjectInfo):
            raise NoSuchKey(parsed.key)
        first, last, _ = slice(start, end).indices(entry.size)
        if conditions.if_match and entry.etag not in conditions.if_match:
            raise PreconditionFailed("If-Match")
        if first >= last:
            return None
        try:
            return await api.open(*parsed, ByteRange(first, last - 1), Conditions(if_match=(entry.etag,)))
        except PreconditionFailed:
            raise _Changed from None
    try:
        return await api.open(*parsed, wanted, conditions)
    except InvalidRange:
        return None  # a slice after the end is empty


def _cut(blocks: list[tuple[int, int | None, Any]], start: int | None, end: int | None) -> Any:
    """Return a range from the blocks that were read of its file: bytes, or the error of the read."""
    first = start or 0
    for at, upto, data in blocks:
        if at <= first and (upto is None or (end is not None and end <= upto)):
            return data if isinstance(data, Exception) else data[first - at : None if end is None else end - at]
    raise AssertionError("every range is in one of the merged blocks")


async def _store_file(writer: MultipartWriter, path: Any, callback: Any) -> None:
    """Store a local file: at once, in large parts, or, if its size is not known, in parts as its content arrives."""
    with await asyncio.to_thread(open, path, "rb") as file:  # opening a pipe waits for its writer
        status = os.fstat(file.fileno())
        if stat.S_ISREG(status.st_mode):
            callback.set_size(status.st_size)
        if not stat.S_ISREG(status.st_mode) or not status.st_size:
            # a pipe, or a file in /proc: neither the size nor the time of its content is known
            while data := await asyncio.to_thread(file.read, writer.part_bytes):
                await writer.add(data)
                callback.relative_update(len(data))
            if not writer.begun:
                await writer.put(b"")
            await writer.commit()
            return
        left = status.st_size
        if left <= SINGLE_BYTES:
            await writer.put_body(FileBody(file, left, callback.relative_update), left)
            return
        while left:
            size = min(left, SINGLE_BYTES // 2)
            await writer.add_body(FileBody(file, size, callback.relative_update), size)
            left -= size
        await writer.commit()


async def _write_file(opened: Opened, path: str, callback: Any) -> None:
    """Write into a temporary file and rename it. What is not a regular file is written directly."""
    direct = os.path.exists(path) and not os.path.isfile(path)
    temporary = path if direct else f"{path}.{secrets.token_hex(6)}.part"
    try:
        with open(temporary, "wb") as file:  # noqa: ASYNC230
            await write_to_file(opened, file, callback.relative_update)
        if not direct:
            os.replace(temporary, path)
    except BaseException:
        if not direct:
            with suppress(OSError):
                os.unlink(temporary)
        raise


def conditions_of(mode: str) -> Conditions:
    """Return the conditions for a write in this *mode*."""
    if mode not in ("create", "overwrite"):
        raise ValueError(f'mode must be "create" or "overwrite", not {mode!r}')
    return _MUST_NOT_EXIST if mode == "create" else NO_CONDITIONS
