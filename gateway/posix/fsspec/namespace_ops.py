"""The operations that change names: directories, buckets, copies, moves, removals. None of them copies content."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from glob import has_magic
from itertools import groupby
from typing import Any

from fsspec.asyn import sync_wrapper

from gateway.engine.types import Conditions, ObjectMeta
from gateway.errors import (
    BucketExists,
    BucketOwned,
    EntrepotError,
    InvalidArgument,
    NameExists,
    NameTooLong,
    NoSuchBucket,
    NoSuchKey,
    NoSuchName,
    NotADirectory,
)
from gateway.posix.api import Directory, FileApi
from gateway.posix.bodies import BytesBody
from gateway.posix.errnos import os_error, os_errors
from gateway.posix.fsspec.base import in_batches
from gateway.posix.fsspec.data_ops import DataOps
from gateway.posix.fsspec.listing import list_pages
from gateway.posix.paths import SLASH, ObjectPath, base_name, format_path

KEYS_PER_COMMAND = 1000


class NamespaceOps(DataOps):
    """The part of `EntrepotFileSystem` that creates, copies, moves and removes names."""

    # --- directories and buckets --------------------------------------------------------------------------------------

    async def _mkdir(self, path: str, create_parents: bool = True, **options: Any) -> None:
        """Create a directory or a bucket. Raises `FileExistsError`; without *create_parents*, `FileNotFoundError` if
        the parent does not exist."""
        parsed = self._parse(path)
        with os_errors(path):
            api = await self._connect()
            if parsed.key:
                await (_make_directory(api, parsed) if create_parents else api.mkdir(*parsed))
            elif parsed.bucket:
                await api.make_bucket(parsed.bucket)
            else:
                raise NameExists("")
        self.invalidate_cache(path)

    async def _makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Create a directory with all its parents. A directory that only keys imply is created, too, so that it
        persists."""
        parsed = self._parse(path)
        try:
            await self._mkdir(path)
        except FileExistsError:
            if not exist_ok:
                raise
        else:
            return
        if parsed.key:
            with os_errors(path):
                api = await self._connect()
                entry = await api.look(*parsed)
                if not isinstance(entry, Directory):
                    raise NotADirectory(parsed.key)
                if not entry.made:
                    await _make_explicit(api, parsed)

    async def _rmdir(self, path: str) -> None:
        """Remove an empty directory or bucket."""
        parsed = self._parse(path)
        with os_errors(path):
            api = await self._connect()
            await (api.rmdir(*parsed) if parsed.key else api.drop_bucket(parsed.bucket))
        self.invalidate_cache(path)

    rmdir = sync_wrapper(_rmdir)

    # --- copies -------------------------------------------------------------------------------------------------------

    async def _copy(self, path1: Any, path2: Any, recursive: bool = False, **options: Any) -> None:
        """Copy files, with *recursive* also directories and buckets with their contents; then a missing bucket of the
        target is created. No content is copied."""
        await super()._copy(path1, path2, recursive=recursive, make_bucket=recursive, **options)

    async def _cp_file(self, path1: str, path2: str, make_bucket: bool = False, **options: Any) -> None:
        """Copy a file without copying its content. Of a directory, only itself is copied, if somebody created it.
        *make_bucket*: create the bucket of *path2* if it does not exist."""
        source, target = self._parse(path1), self._parse(path2)
        if not source.key or not target.key:
            await self._info(path1)
            await self._makedirs(path2, exist_ok=True)
            return
        with os_errors(path1):
            api = await self._connect()
            try:
                await api.copy(*source, *target)
            except NoSuchKey:
                entry = await api.look(*source)
                if isinstance(entry, Directory) and entry.made:
                    await self._makedirs(path2, exist_ok=True)
            except NoSuchBucket as error:
                await api.bucket(source.bucket)
                if not make_bucket:
                    raise os_error(error, path2) from None
                await _make_bucket(api, target.bucket)
                await api.copy(*source, *target)
        self.invalidate_cache(path2)

    # --- moves --------------------------------------------------------------------------------------------------------

    async def _mv(
        self, path1: Any, path2: Any, recursive: bool = False, maxdepth: int | None = None, **options: Any
    ) -> None:
        """Move files or directories. Within a bucket each move is one record, however much is below it.

        If *path2* is a directory or ends in a slash, they are moved into it. If *path1* ends in a slash, its contents
        are moved. A directory is always moved whole, so *recursive* has no effect and *maxdepth* is refused."""
        if maxdepth is not None:
            raise ValueError("a directory is always moved whole: maxdepth is not supported")
        for source, target in await self._moves(path1, path2):
            await self._mv_file(source, target)

    mv = sync_wrapper(_mv)

    async def _moves(self, path1: Any, path2: Any) -> list[tuple[str, str]]:
        """Return pairs of source and target."""
        if isinstance(path1, list) and isinstance(path2, list):
            return list(zip(self._strip_protocol(path1), self._strip_protocol(path2), strict=True))
        target = self._strip_protocol(path2)
        several = isinstance(path1, list) or has_magic(os.fspath(path1))
        sources = await self._expand_path(path1) if several else [self._strip_protocol(path1)]
        if not several and os.fspath(path1).endswith("/"):
            if not await self._isdir(target):
                return [(sources[0], target)]
            sources = await self._ls(sources[0], detail=False)
        elif not several and not (os.fspath(path2).endswith("/") or await self._isdir(target)):
            return [(sources[0], target)]
        return [(each, f"{target}/{base_name(each)}") for each in sources]

    async def _mv_file(self, path1: str, path2: str, **options: Any) -> None:
        """Move one file or directory to *path2*, replacing a file there."""
        source, target = self._parse_in_bucket(path1), self._parse_in_bucket(path2)
        if source == target:
            await self._info(path1)
            return
        with os_errors(path1):
            api = await self._connect()
            directory = isinstance(await api.look(*source), Directory)
            if source.bucket == target.bucket and source.is_posix and target.is_posix:
                with suppress(InvalidArgument, NameTooLong):  # a name that only S3 has, or that of a directory, too
                    await _rename(api, source, target, directory)
                    self._invalidate_both(path1, path2)
                    return
            if directory:
                await self._move_tree(api, source, target)
            else:
                await api.move(*source, *target)
        self._invalidate_both(path1, path2)

    mv_file = sync_wrapper(_mv_file)

    def _invalidate_both(self, path1: str, path2: str) -> None:
        self.invalidate_cache(path1)
        self.invalidate_cache(path2)

    async def _move_tree(self, api: FileApi, source: ObjectPath, target: ObjectPath) -> None:
        """Move each key below a directory, a page at a time, each atomically: if this is interrupted, each key is at
        one place or the other. What is written to the source meanwhile is moved, too, or stays there."""
        if source.bucket == target.bucket and target.prefix.startswith(source.prefix):
            raise OSError(errno.EINVAL, "a directory cannot be moved below itself", format_path(*source))
        async for page in list_pages(api, source.bucket, source.prefix):
            await in_batches([_move_listed(api, source, target, each.key) for each in page.keys], self.batch_size)

    # --- removals -----------------------------------------------------------------------------------------------------

    async def _rm_file(self, path: str, **options: Any) -> None:
        """Remove one file. Raises `FileNotFoundError`, `IsADirectoryError`."""
        await self._remove_files([self._strip_protocol(path)])

    async def _rm(
        self,
        path: Any,
        recursive: bool = False,
        batch_size: int | None = None,
        maxdepth: int | None = None,
        **options: Any,
    ) -> None:
        """Remove files, a thousand with each command. With *recursive*, also directories and buckets with their
        contents; with *maxdepth* as well, only the files down to that depth."""
        if recursive and maxdepth is not None:
            await self._remove_files(await self._files(path, maxdepth))
            return
        paths = await self._expand_path(path)
        if not recursive:
            await self._remove_files(paths)
        elif not any([await self._remove_tree(each) for each in paths]):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))

    async def _remove_files(self, paths: list[str]) -> None:
        places = sorted(self._parse(each) for each in paths)
        for bucket, group in groupby(places, key=lambda parsed: parsed.bucket):
            with os_errors(bucket):
                api = await self._connect()
                keys = [parsed.key for parsed in group]
                for at in range(0, len(keys), KEYS_PER_COMMAND):
                    await self._remove_page(api, bucket, keys[at : at + KEYS_PER_COMMAND])
        for path in paths:
            self.invalidate_cache(path)

    async def _remove_page(self, api: FileApi, bucket: str, keys: list[bytes]) -> None:
        if b"" in keys:
            raise await self._no_file_error(api, ObjectPath(bucket, b""), bucket)
        outcomes = await api.remove(bucket, keys, must_exist=True)
        for key, error in zip(keys, outcomes, strict=True):
            if isinstance(error, NoSuchKey):
                raise await self._no_file_error(api, ObjectPath(bucket, key), format_path(bucket, key))
            if error is not None:
                raise os_error(error, format_path(bucket, key))

    async def _remove_tree(self, path: str) -> bool:
        """Remove everything at and below a path. Returns whether there was anything."""
        parsed = self._parse(path)
        if not parsed.bucket:
            raise PermissionError(errno.EPERM, "removing all buckets at once is not allowed", path)
        removed = False
        with os_errors(path):
            api = await self._connect()
            if parsed.key:
                try:
                    (outcome,) = await api.remove(parsed.bucket, [parsed.key], must_exist=True)
                except NoSuchBucket:
                    return False
                removed = outcome is None
            async for page in list_pages(api, parsed.bucket, parsed.prefix):
                keys = [each.key for each in page.keys]
                await _remove_all(api, parsed.bucket, keys)
                removed = removed or bool(keys)
            if not parsed.key:
                await api.drop_bucket(parsed.bucket)
                removed = True
        self.invalidate_cache(path)
        return removed


async def _make_directory(api: FileApi, parsed: ObjectPath) -> None:
    """Create a directory, with its missing parents and its bucket."""
    try:
        await api.mkdir(*parsed)
    except NoSuchBucket:
        await _make_bucket(api, parsed.bucket)
    except NoSuchName:
        pass
    else:
        return
    await _make_parents(api, parsed)
    await api.mkdir(*parsed)


async def _make_bucket(api: FileApi, bucket: str) -> None:
    with suppress(BucketOwned, BucketExists):
        await api.make_bucket(bucket)


async def _make_parents(api: FileApi, parsed: ObjectPath) -> None:
    """Create the missing parents of a directory."""
    *names, _ = parsed.key.split(SLASH)
    paths = [SLASH.join(names[:depth]) for depth in range(1, len(names) + 1)]
    for result in await api.compound([("mkdir", (parsed.bucket, path)) for path in paths]):
        if isinstance(result, EntrepotError) and not isinstance(result, NameExists):
            raise result


async def _make_explicit(api: FileApi, parsed: ObjectPath) -> None:
    """Create a directory that was only implied."""
    marker = parsed.key + SLASH
    with suppress(EntrepotError):
        await api.put(parsed.bucket, marker, BytesBody(b""), 0, ObjectMeta(), Conditions(if_none_match=("*",)))


async def _remove_all(api: FileApi, bucket: str, keys: list[bytes]) -> None:
    for error in await api.remove(bucket, keys, must_exist=False) if keys else ():
        if error is not None:
            raise error


async def _move_listed(api: FileApi, source: ObjectPath, target: ObjectPath, key: bytes) -> None:
    """Move one of the keys below *source*, unless it was removed since it was listed."""
    to_key = target.prefix + key[len(source.prefix) :]
    with os_errors(format_path(source.bucket, key)), suppress(NoSuchKey):
        await api.move(source.bucket, key, target.bucket, to_key)


async def _rename(api: FileApi, source: ObjectPath, target: ObjectPath, directory: bool) -> None:
    try:
        await api.rename(source.bucket, source.key, target.key, directory=directory)
    except NoSuchName:
        await api.look(*source)
        await _make_parents(api, target)
        await api.rename(source.bucket, source.key, target.key, directory=directory)
