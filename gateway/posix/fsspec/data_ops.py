"""Bytes into the tree and out of it: values, ranges, local files."""

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
"""Larger local files are stored in parts of half of it."""
OFFSET_MOST = (1 << 63) - 1
TRIES = 5
"""How often a file is looked at again that was written between the look and the read."""
_FREE = Conditions(if_none_match=("*",))


class DataOps(ListingOps):
    """The part of `EntrepotFileSystem` that reads and writes whole files and ranges."""

    async def _cat_file(
        self, path: str, start: int | None = None, end: int | None = None, if_match: str | None = None, **options: Any
    ) -> bytes:
        """A file's bytes from *start* up to *end*, each counted from the end where it is negative, as a slice is.
        *if_match*: an ETag that the file must have; otherwise an `OSError` (ESTALE) is raised."""
        place, start, end = self._parse(path), _offset(start), _offset(end)
        conditions = NO_CONDITIONS if if_match is None else Conditions(if_match=(if_match,))
        with os_errors(path):
            api = await self._connect()
            if not place.key:
                raise await self._absent(api, place, path)
            try:
                for _ in range(TRIES):
                    with suppress(_Changed):
                        opened = await _open_slice(api, place, start, end, conditions)
                        return b"" if opened is None else await read_all(opened)
            except NoSuchKey:
                raise await self._absent(api, place, path) from None
        raise OSError(errno.ESTALE, "the file keeps changing", path)

    async def _cat(
        self, path: Any, recursive: bool = False, on_error: str = "raise", batch_size: int | None = None, **options: Any
    ) -> Any:
        """The bytes of one file, or of several by path; *recursive*: of every file below."""
        if not recursive:
            return await super()._cat(path, on_error=on_error, batch_size=batch_size, **options)
        found = await self._files(path)
        reading = [self._cat_file(each, **options) for each in found]
        read = await in_batches(
            reading if on_error == "raise" else map(return_error, reading), batch_size or self.batch_size
        )
        if not isinstance(path, list) and found == [self._strip_protocol(path)]:
            return read[0]
        pairs = zip(found, read, strict=True)
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
        """Many ranges of many files, some at a time, each as in `cat_file`. *max_gap*: ranges of a file that are at
        most so many bytes apart are read together."""
        paths = self._strip_protocol(list(paths))
        starts, ends = _offsets(starts, len(paths)), _offsets(ends, len(paths))
        if max_gap is None or any((each or 0) < 0 for each in (*starts, *ends)):
            return list(await super()._cat_ranges(paths, starts, ends, None, batch_size, on_error, **options))
        ends = [None if end is None else max(start or 0, end) for start, end in zip(starts, ends, strict=True)]
        blocks = merge_offset_ranges(paths, starts, ends, max_gap=max_gap)
        read = await super()._cat_ranges(*blocks, None, batch_size, on_error, **options)
        held: dict[str, list[tuple[int, int | None, Any]]] = {}
        for path, start, end, data in zip(*blocks, read, strict=True):
            held.setdefault(path, []).append((start, end, data))
        return [_cut(held[path], *ends_of) for path, *ends_of in zip(paths, starts, ends, strict=True)]

    async def _pipe_file(
        self,
        path: str,
        value: Any,
        mode: str = "overwrite",
        content_type: str | None = None,
        metadata: dict[str, str] | None = None,
        **options: Any,
    ) -> None:
        """Make *value* the file's bytes, durably. *mode* "create": raises `FileExistsError` where there is one."""
        place, data = self._parse_in_bucket(path), as_bytes_view(value)
        with os_errors(path):
            await MultipartWriter(self._connect, place, make_meta(content_type, metadata), conditions_of(mode)).put(
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
        """Store a local file, a piece at a time; a directory is made, with nothing in it. *mode* as in `pipe_file`."""
        if os.path.isdir(lpath):
            await self._makedirs(rpath, exist_ok=True)
            return
        meta = make_meta(content_type, metadata)
        writing = MultipartWriter(self._connect, self._parse_in_bucket(rpath), meta, conditions_of(mode))
        with os_errors(rpath):
            try:
                await _store_file(writing, lpath, callback)
            except BaseException:
                await writing.discard()
                raise
        self.invalidate_cache(rpath)

    async def _get_file(self, rpath: str, lpath: Any, callback: Any = DEFAULT_CALLBACK, **options: Any) -> None:
        """Write a file into a local one, a piece at a time; the local one appears whole, or not at all. A directory
        is made, with nothing in it. *lpath* may be an open file."""
        place = self._parse(rpath)
        with os_errors(rpath):
            api = await self._connect()
            try:
                if not place.key:
                    raise NoSuchKey(place.key)
                opened = await api.open(*place)
            except NoSuchKey:
                why = await self._absent(api, place, rpath)
                if not isinstance(why, IsADirectoryError):
                    raise why from None
                Path(lpath).mkdir(parents=True, exist_ok=True)
                return
            callback.set_size(opened.length)
            if isfilelike(lpath):
                await write_to_file(opened, lpath, callback.relative_update)
            else:
                await _write_file(opened, os.fspath(lpath), callback)

    async def _touch(self, path: str, truncate: bool = True, **options: Any) -> None:
        """Make an empty file; without *truncate*, one that stands keeps its bytes and gets a new time."""
        if truncate or not await self._exists(path):
            await self._pipe_file(path, b"", **options)
            return
        place = self._parse_in_bucket(path)
        with os_errors(path):
            api = await self._connect()
            try:
                await api.copy(*place, *place)
            except NoSuchKey:
                raise await self._absent(api, place, path) from None
        self.invalidate_cache(path)

    async def _setxattr(self, path: str, **attributes: str | None) -> None:
        """Set some of a file's `metadata`, or with None take them away. No bytes move."""
        place = self._parse_in_bucket(path)
        with os_errors(path):
            api = await self._connect()
            found = await api.look(*place)
            if not isinstance(found, ObjectInfo):
                raise await self._absent(api, place, path)
            headers = dict(found.headers)
            for name, value in attributes.items():
                headers.pop(f"{META}{name.lower()}", None)
                if value is not None:
                    headers[f"{META}{name.lower()}"] = str(value)
            await api.copy(*place, *place, ObjectMeta(headers), Conditions(if_match=(found.etag,)))
        self.invalidate_cache(path)

    touch = sync_wrapper(_touch)
    setxattr = sync_wrapper(_setxattr)


def _offset(value: Any) -> int | None:
    """A place in a file as any whole number says it, numpy's too; beyond what a file can have it is all the same."""
    return None if value is None else max(-OFFSET_MOST, min(index(value), OFFSET_MOST))


def _offsets(values: Any, count: int) -> list[int | None]:
    """One for each of *count* ranges: of any row of them, or one for all."""
    return [_offset(each) for each in values] if isinstance(values, Iterable) else [_offset(values)] * count


class _Changed(Exception):
    """What was looked at is not what was read then."""


async def _open_slice(
    api: FileApi, place: ObjectPath, start: int | None, end: int | None, conditions: Conditions
) -> Opened | None:
    """The bytes of a Python slice, opened; None where there are none. Raises `_Changed` where it had to look at the
    size first, and that is another one by now."""
    if (start is None or start >= 0) and end is None:
        wanted = ByteRange(start, None) if start else None
    elif start is not None and start < 0 and end is None:
        wanted = ByteRange(None, -start)
    elif end is not None and end > (start or 0) >= 0:
        wanted = ByteRange(start or 0, end - 1)
    else:
        found = await api.look(*place)
        if not isinstance(found, ObjectInfo):
            raise NoSuchKey(place.key)
        first, last, _ = slice(start, end).indices(found.size)
        if conditions.if_match and found.etag not in conditions.if_match:
            raise PreconditionFailed("If-Match")
        if first >= last:
            return None
        try:
            return await api.open(*place, ByteRange(first, last - 1), Conditions(if_match=(found.etag,)))
        except PreconditionFailed:
            raise _Changed from None
    try:
        return await api.open(*place, wanted, conditions)
    except InvalidRange:
        return None  # behind the end there is nothing, as in a slice


def _cut(blocks: list[tuple[int, int | None, Any]], start: int | None, end: int | None) -> Any:
    """A range out of the blocks that were read of its file: bytes, or the error instead."""
    first = start or 0
    for at, upto, data in blocks:
        if at <= first and (upto is None or (end is not None and end <= upto)):
            return data if isinstance(data, Exception) else data[first - at : None if end is None else end - at]
    raise AssertionError("every range is in one of the blocks that were made of them")


async def _store_file(writing: MultipartWriter, path: Any, callback: Any) -> None:
    with await asyncio.to_thread(open, path, "rb") as file:  # opening a pipe waits for who writes into it
        status = os.fstat(file.fileno())
        if stat.S_ISREG(status.st_mode):
            callback.set_size(status.st_size)
        if not stat.S_ISREG(status.st_mode) or not status.st_size:
            # a pipe, or a file of /proc: nobody knows how much there is, nor when it comes
            while data := await asyncio.to_thread(file.read, writing.part_bytes):
                await writing.add(data)
                callback.relative_update(len(data))
            if not writing.begun:
                await writing.put(b"")
            await writing.commit()
            return
        left = status.st_size
        if left <= SINGLE_BYTES:
            await writing.put_body(FileBody(file, left, callback.relative_update), left)
            return
        while left:
            size = min(left, SINGLE_BYTES // 2)
            await writing.add_body(FileBody(file, size, callback.relative_update), size)
            left -= size
        await writing.commit()


async def _write_file(opened: Opened, path: str, callback: Any) -> None:
    """Beside it first, then renamed over it; straight into what is no regular file."""
    direct = os.path.exists(path) and not os.path.isfile(path)
    beside = path if direct else f"{path}.{secrets.token_hex(6)}.part"
    try:
        with open(beside, "wb") as file:  # noqa: ASYNC230
            await write_to_file(opened, file, callback.relative_update)
        if not direct:
            os.replace(beside, path)
    except BaseException:
        if not direct:
            with suppress(OSError):
                os.unlink(beside)
        raise


def conditions_of(mode: str) -> Conditions:
    """What must hold for a write of this *mode*."""
    if mode not in ("create", "overwrite"):
        raise ValueError(f'a file is written in mode "create" or "overwrite", not {mode!r}')
    return _FREE if mode == "create" else NO_CONDITIONS
