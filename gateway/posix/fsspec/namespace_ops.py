"""Changing the tree: directories, buckets, copies, moves, removals. None of it moves bytes."""

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
from gateway.posix.fsspec.listing import pages
from gateway.posix.paths import SLASH, ObjectPath, base_name, format_path

REMOVED_AT_ONCE = 1000


class NamespaceOps(DataOps):
    """The part of `EntrepotFileSystem` that makes, copies, moves and removes names."""

    # --- directories and buckets --------------------------------------------------------------------------------------

    async def _mkdir(self, path: str, create_parents: bool = True, **options: Any) -> None:
        """Make a directory, or a bucket. Raises `FileExistsError`; without *create_parents* `FileNotFoundError` where
        the directory above is missing."""
        place = self._parse(path)
        with os_errors(path):
            api = await self._connect()
            if place.key:
                await (_make(api, place) if create_parents else api.mkdir(*place))
            elif place.bucket:
                await api.make_bucket(place.bucket)
            else:
                raise NameExists("")
        self.invalidate_cache(path)

    async def _makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Make a directory with all above it. One that S3's keys only imply is made, too, so that it stays."""
        place = self._parse(path)
        try:
            await self._mkdir(path)
        except FileExistsError:
            if not exist_ok:
                raise
        else:
            return
        if place.key:
            with os_errors(path):
                api = await self._connect()
                found = await api.look(*place)
                if not isinstance(found, Directory):
                    raise NotADirectory(place.key)
                if not found.made:
                    await _mark(api, place)

    async def _rmdir(self, path: str) -> None:
        """Remove an empty directory or bucket."""
        place = self._parse(path)
        with os_errors(path):
            api = await self._connect()
            await (api.rmdir(*place) if place.key else api.drop_bucket(place.bucket))
        self.invalidate_cache(path)

    rmdir = sync_wrapper(_rmdir)

    # --- copies -------------------------------------------------------------------------------------------------------

    async def _copy(self, path1: Any, path2: Any, recursive: bool = False, **options: Any) -> None:
        """Copy files, and with *recursive* directories and buckets with all that is in them; then also the bucket that
        they are copied to is made where it is missing. No bytes are moved."""
        await super()._copy(path1, path2, recursive=recursive, make_bucket=recursive, **options)

    async def _cp_file(self, path1: str, path2: str, make_bucket: bool = False, **options: Any) -> None:
        """Give a file's bytes another name. Of a directory only itself is copied, if somebody made it. *make_bucket*:
        that of *path2*, where it is missing."""
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
                found = await api.look(*source)
                if isinstance(found, Directory) and found.made:
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
        """Move files or directories: within a bucket each is one record, however much lies below it. Where *path2* is
        a directory or ends in a slash, they go into it; *path1* with a slash at its end means what it holds. A
        directory is moved whole, so *recursive* says nothing and *maxdepth* is refused."""
        if maxdepth is not None:
            raise ValueError("a directory is moved whole: there is no maxdepth")
        for source, target in await self._moves(path1, path2):
            await self._mv_file(source, target)

    mv = sync_wrapper(_mv)

    async def _moves(self, path1: Any, path2: Any) -> list[tuple[str, str]]:
        """From where to where."""
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
                with suppress(InvalidArgument, NameTooLong):  # an object beside a directory of its name, or S3's alone
                    await _rename(api, source, target, directory)
                    self._moved(path1, path2)
                    return
            if directory:
                await self._move_tree(api, source, target)
            else:
                await api.move(*source, *target)
        self._moved(path1, path2)

    mv_file = sync_wrapper(_mv_file)

    def _moved(self, path1: str, path2: str) -> None:
        self.invalidate_cache(path1)
        self.invalidate_cache(path2)

    async def _move_tree(self, api: FileApi, source: ObjectPath, target: ObjectPath) -> None:
        """A page at a time, each key in one step: cut short, each is at one place or the other. What is written to
        the source meanwhile moves, too, or stays there."""
        if source.bucket == target.bucket and target.prefix.startswith(source.prefix):
            raise OSError(errno.EINVAL, "a directory cannot move below itself", format_path(*source))
        async for page in pages(api, source.bucket, source.prefix):
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
        """Remove files, a thousand with each command; *recursive*: directories and buckets as well, with all that is
        in them; with *maxdepth* only the files down to that depth."""
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
        for bucket, group in groupby(places, key=lambda place: place.bucket):
            with os_errors(bucket):
                api = await self._connect()
                keys = [place.key for place in group]
                for at in range(0, len(keys), REMOVED_AT_ONCE):
                    await self._remove_page(api, bucket, keys[at : at + REMOVED_AT_ONCE])
        for path in paths:
            self.invalidate_cache(path)

    async def _remove_page(self, api: FileApi, bucket: str, keys: list[bytes]) -> None:
        if b"" in keys:
            raise await self._absent(api, ObjectPath(bucket, b""), bucket)
        outcomes = await api.remove(bucket, keys, must_exist=True)
        for key, error in zip(keys, outcomes, strict=True):
            if isinstance(error, NoSuchKey):
                raise await self._absent(api, ObjectPath(bucket, key), format_path(bucket, key))
            if error is not None:
                raise os_error(error, format_path(bucket, key))

    async def _remove_tree(self, path: str) -> bool:
        """Whether there was anything."""
        place = self._parse(path)
        if not place.bucket:
            raise PermissionError(errno.EPERM, "all buckets are not removed at once", path)
        gone = False
        with os_errors(path):
            api = await self._connect()
            if place.key:
                try:
                    (outcome,) = await api.remove(place.bucket, [place.key], must_exist=True)
                except NoSuchBucket:
                    return False
                gone = outcome is None
            async for page in pages(api, place.bucket, place.prefix):
                keys = [each.key for each in page.keys]
                await _remove_all(api, place.bucket, keys)
                gone = gone or bool(keys)
            if not place.key:
                await api.drop_bucket(place.bucket)
                gone = True
        self.invalidate_cache(path)
        return gone


async def _make(api: FileApi, place: ObjectPath) -> None:
    """Make a directory, with those above it and the bucket where they are missing."""
    try:
        await api.mkdir(*place)
    except NoSuchBucket:
        await _make_bucket(api, place.bucket)
    except NoSuchName:
        pass
    else:
        return
    await _make_above(api, place)
    await api.mkdir(*place)


async def _make_bucket(api: FileApi, bucket: str) -> None:
    with suppress(BucketOwned, BucketExists):
        await api.make_bucket(bucket)


async def _make_above(api: FileApi, place: ObjectPath) -> None:
    """Make the directories above where they are missing."""
    *names, _ = place.key.split(SLASH)
    paths = [SLASH.join(names[:depth]) for depth in range(1, len(names) + 1)]
    for found in await api.compound([("mkdir", (place.bucket, path)) for path in paths]):
        if isinstance(found, EntrepotError) and not isinstance(found, NameExists):
            raise found


async def _mark(api: FileApi, place: ObjectPath) -> None:
    """Make a directory that is only implied."""
    marker = place.key + SLASH
    with suppress(EntrepotError):
        await api.put(place.bucket, marker, BytesBody(b""), 0, ObjectMeta(), Conditions(if_none_match=("*",)))


async def _remove_all(api: FileApi, bucket: str, keys: list[bytes]) -> None:
    for error in await api.remove(bucket, keys, must_exist=False) if keys else ():
        if error is not None:
            raise error


async def _move_listed(api: FileApi, source: ObjectPath, target: ObjectPath, key: bytes) -> None:
    """One of the keys below *source*, unless somebody removed it since it was listed."""
    to_key = target.prefix + key[len(source.prefix) :]
    with os_errors(format_path(source.bucket, key)), suppress(NoSuchKey):
        await api.move(source.bucket, key, target.bucket, to_key)


async def _rename(api: FileApi, source: ObjectPath, target: ObjectPath, directory: bool) -> None:
    try:
        await api.rename(source.bucket, source.key, target.key, directory=directory)
    except NoSuchName:
        await api.look(*source)
        await _make_above(api, target)
        await api.rename(source.bucket, source.key, target.key, directory=directory)
