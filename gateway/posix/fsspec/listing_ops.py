"""The operations that read names and attributes: info, listings, trees, and what is derived from an info."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from datetime import datetime
from glob import has_magic
from hashlib import blake2b
from pathlib import Path
from typing import Any

from fsspec.asyn import sync_wrapper

from gateway.engine.types import ObjectInfo
from gateway.errors import NoSuchBucket
from gateway.posix.errnos import os_errors
from gateway.posix.fsspec import info as infos
from gateway.posix.fsspec import listing
from gateway.posix.fsspec.base import NO_NAME, FileSystemBase, in_batches
from gateway.posix.fsspec.info import Info
from gateway.posix.paths import ObjectPath, encode_key, format_path
from gateway.posix.rpc.client import RpcClient

WEEK_SECONDS = 7 * 24 * 3600
"""S3's maximum for the validity of a presigned URL."""


class ListingOps(FileSystemBase):
    """The part of `EntrepotFileSystem` that changes nothing and reads no content."""

    async def _info(self, path: str, refresh: bool = False, **options: Any) -> Info:
        """Return a path's `Info`. Raises `FileNotFoundError`."""
        parsed = self._parse(path)
        if not parsed.bucket:
            return infos.directory_info("")
        cached = None if refresh else self._ls_from_cache(self._strip_protocol(path))
        if cached and cached[0]["name"] == format_path(*parsed):
            return dict(cached[0])
        with os_errors(path):
            api = await self._connect()
            if not parsed.key:
                return infos.bucket_info(await api.bucket(parsed.bucket))
            entry = await api.look(*parsed)
        if isinstance(entry, ObjectInfo):
            return infos.object_info(parsed.bucket, entry)
        return infos.directory_info(format_path(*parsed))

    async def _exists(self, path: str, **options: Any) -> bool:
        """Whether anything exists at *path*. A path that nothing can have does not exist."""
        try:
            await self._info(path, **options)
        except OSError as error:
            if error.errno in NO_NAME | {errno.ENOENT, errno.ENOTDIR}:
                return False
            raise
        return True

    async def _ls(self, path: str, detail: bool = True, refresh: bool = False, **options: Any) -> list[Any]:
        """Return the contents of a directory by name; for a file, its own info. Raises `FileNotFoundError`."""
        stripped: str = self._strip_protocol(path)
        entries: list[Info] | None = None if refresh else self.dircache.get(stripped)
        if entries is None:
            entries = await self._list_directory(self._parse(path))
            if entries is None:
                entries = [await self._info(path, refresh=True)]
            else:
                self.dircache[stripped] = entries
        return [dict(each) for each in entries] if detail else [each["name"] for each in entries]

    async def _list_directory(self, parsed: ObjectPath, beginning: str = "") -> list[Info] | None:
        """Return the contents of a directory whose names begin with *beginning*; None if it does not exist."""
        with os_errors(format_path(*parsed)):
            api = await self._connect()
            if not parsed.bucket:
                buckets = await listing.list_buckets(api)
                return [each for each in buckets if each["name"].startswith(beginning)]
            return await listing.list_directory(api, parsed, encode_key(beginning))

    async def _find(
        self,
        path: str,
        maxdepth: int | None = None,
        withdirs: bool = False,
        detail: bool = False,
        prefix: str = "",
        **options: Any,
    ) -> Any:
        """Return every file below *path*, with *withdirs* also every directory: paths, or infos by path.

        *prefix*: only the direct contents of *path* that begin with it, and what is below these. Without *maxdepth* it
        is one flat listing."""
        if maxdepth is not None and maxdepth < 1:
            raise ValueError("maxdepth must be at least 1")
        try:
            parsed = self._parse(path)
            self._parse(f"{format_path(*parsed)}/{prefix}")
        except OSError as error:
            if error.errno not in NO_NAME:
                raise
            return {} if detail else []
        if maxdepth is None:
            entries = await self._tree(parsed, prefix, withdirs)
        else:
            entries = await self._levels(parsed, prefix, maxdepth)
            if not withdirs:
                entries = {name: info for name, info in entries.items() if info["type"] == "file"}
        if entries and parsed.key and withdirs:
            entries[format_path(*parsed)] = infos.directory_info(format_path(*parsed))
        elif parsed.bucket and (withdirs or not entries):
            try:
                own = await self._info(format_path(*parsed))
            except FileNotFoundError:
                own = None
            if own is not None and (withdirs if own["type"] == "directory" else not entries):
                entries[own["name"]] = own
        return {name: entries[name] for name in sorted(entries)} if detail else sorted(entries)

    async def _tree(self, parsed: ObjectPath, beginning: str, withdirs: bool) -> dict[str, Info]:
        """Return everything below a directory, by path, from flat listings."""
        with os_errors(format_path(*parsed)):
            api = await self._connect()
            if parsed.bucket:
                try:
                    return await listing.list_tree(api, parsed, encode_key(beginning), withdirs=withdirs)
                except NoSuchBucket:
                    return {}
            entries: dict[str, Info] = {}
            for bucket in await listing.list_buckets(api):
                if bucket["name"].startswith(beginning):
                    entries |= {bucket["name"]: bucket} if withdirs else {}
                    entries |= await listing.list_tree(api, ObjectPath(bucket["name"], b""), withdirs=withdirs)
            return entries

    async def _files(self, path: Any, maxdepth: int | None = None) -> list[str]:
        """Return the files that a path, or a list of paths, stands for, with everything below. A pattern stands for
        what it matches, which is its first level. Raises `FileNotFoundError` for a path that does not exist."""
        entries: set[str] = set()
        for each in path if isinstance(path, list) else [path]:
            root: str = self._strip_protocol(each)
            if not has_magic(root):
                below = await self._find(root, maxdepth=maxdepth)
                if not below:
                    await self._info(root)
                entries.update(below)
                continue
            for name, info in (await self._glob(root, detail=True)).items():
                if info["type"] == "file":
                    entries.add(name)
                elif maxdepth != 1:
                    entries.update(await self._find(name, maxdepth=maxdepth and maxdepth - 1))
        return sorted(entries)

    async def _levels(self, parsed: ObjectPath, beginning: str, depth: int) -> dict[str, Info]:
        """Return files and directories of the first *depth* levels below a directory."""
        try:
            here = await self._list_directory(parsed, beginning) or []
        except FileNotFoundError:
            here = []
        entries = {info["name"]: info for info in here}
        if depth > 1:
            below = [self._levels(self._parse(each["name"]), "", depth - 1) for each in _directories(here)]
            for more in await in_batches(below, self.batch_size):
                entries |= more
        return entries

    async def _du(self, path: str, total: bool = True, maxdepth: int | None = None, **options: Any) -> Any:
        """Return the size of all files below *path* in bytes: the sum, or by path."""
        entries = await self._find(path, maxdepth=maxdepth, detail=True)
        sizes = {name: info["size"] for name, info in entries.items()}
        return sum(sizes.values()) if total else sizes

    # --- attributes of one file ---------------------------------------------------------------------------------------

    async def _modified(self, path: str) -> datetime:
        """Return when the file's content last changed: S3's LastModified, aware and in UTC."""
        return _time_of(await self._info(path), "LastModified", path)

    async def _created(self, path: str) -> datetime:
        """Return when the file's content was written, since an object is never changed in place; for a bucket, when it
        was created."""
        info = await self._info(path)
        return _time_of(info, "created" if "created" in info else "LastModified", path)

    async def _ukey(self, path: str) -> str:
        """Return a text that changes whenever the file's content changes."""
        info = await self._info(path)
        state = (info["name"], info["type"], info["size"], info.get("ETag"), str(info.get("LastModified")))
        return blake2b(repr(state).encode(), digest_size=32).hexdigest()

    async def _checksum(self, path: str) -> int:
        """Return a number that is equal for equal content."""
        info = await self._info(path)
        return int(blake2b(repr((info["size"], info.get("ETag"))).encode(), digest_size=16).hexdigest(), 16)

    async def _metadata(self, path: str) -> dict[str, str]:
        """Return a file's user metadata, S3's `x-amz-meta-…`."""
        return dict((await self._info(path, refresh=True)).get("metadata", {}))

    async def _getxattr(self, path: str, name: str) -> str | None:
        """Return one entry of `metadata`, None if it does not exist."""
        return (await self._metadata(path)).get(name.lower())

    async def _sign(self, path: str, expiration: int = 100, **options: Any) -> str:
        """Return a URL with which anyone may read the file over HTTP for *expiration* seconds, at most a week. The file
        need not exist yet.

        Raises `ValueError` in process, where there is no gateway for the URL."""
        parsed = self._parse(path)
        if not parsed.key:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if not 1 <= expiration <= WEEK_SECONDS:
            raise ValueError(f"expiration must be 1 to {WEEK_SECONDS} seconds, not {expiration}")
        with os_errors(path):
            in_process = isinstance(self._at(), Path)
            if in_process:
                raise ValueError("in process there is no gateway for the URL: give endpoint=")
            api = await self._connect()
        assert isinstance(api, RpcClient)
        return api.presigned_url(*parsed, int(expiration))

    sign = sync_wrapper(_sign)
    modified = sync_wrapper(_modified)
    created = sync_wrapper(_created)
    ukey = sync_wrapper(_ukey)
    checksum = sync_wrapper(_checksum)
    metadata = sync_wrapper(_metadata)
    getxattr = sync_wrapper(_getxattr)


def _directories(entries: Sequence[Info]) -> list[Info]:
    return [each for each in entries if each["type"] == "directory"]


def _time_of(info: Info, name: str, path: str) -> datetime:
    if name not in info:
        raise IsADirectoryError(errno.EISDIR, "a directory has no such time", path)
    at: datetime = info[name]
    return at
