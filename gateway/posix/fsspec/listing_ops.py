"""Looking at the tree: what stands where, what a directory holds, all that lies below."""

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
"""For how long S3 lets an address be signed."""


class ListingOps(FileSystemBase):
    """The part of `EntrepotFileSystem` that changes nothing."""

    async def _info(self, path: str, refresh: bool = False, **options: Any) -> Info:
        """See `infos.Info`. Raises `FileNotFoundError`."""
        place = self._parse(path)
        if not place.bucket:
            return infos.directory("")
        known = None if refresh else self._ls_from_cache(self._strip_protocol(path))
        if known and known[0]["name"] == format_path(*place):
            return dict(known[0])
        with os_errors(path):
            api = await self._connect()
            if not place.key:
                return infos.of_bucket(await api.bucket(place.bucket))
            found = await api.look(*place)
        if isinstance(found, ObjectInfo):
            return infos.of_object(place.bucket, found)
        return infos.directory(format_path(*place))

    async def _exists(self, path: str, **options: Any) -> bool:
        """Whether anything is there; what is no name that anything can have is not."""
        try:
            await self._info(path, **options)
        except OSError as error:
            if error.errno in NO_NAME | {errno.ENOENT, errno.ENOTDIR}:
                return False
            raise
        return True

    async def _ls(self, path: str, detail: bool = True, refresh: bool = False, **options: Any) -> list[Any]:
        """What a directory holds, by name; a file's own info. Raises `FileNotFoundError`."""
        stripped: str = self._strip_protocol(path)
        found: list[Info] | None = None if refresh else self.dircache.get(stripped)
        if found is None:
            found = await self._listed(self._parse(path))
            if found is None:
                found = [await self._info(path, refresh=True)]
            else:
                self.dircache[stripped] = found
        return [dict(each) for each in found] if detail else [each["name"] for each in found]

    async def _listed(self, place: ObjectPath, beginning: str = "") -> list[Info] | None:
        """What stands in a directory under names that begin with *beginning*; None where that is nothing."""
        with os_errors(format_path(*place)):
            api = await self._connect()
            if not place.bucket:
                found = await listing.buckets(api)
                return [each for each in found if each["name"].startswith(beginning)]
            return await listing.directory(api, place, encode_key(beginning))

    async def _find(
        self,
        path: str,
        maxdepth: int | None = None,
        withdirs: bool = False,
        detail: bool = False,
        prefix: str = "",
        **options: Any,
    ) -> Any:
        """Every file below *path*, and with *withdirs* every directory: paths, or infos by path. *prefix*: of what
        stands directly in *path*, only what begins with that. Without *maxdepth* it is one flat listing."""
        if maxdepth is not None and maxdepth < 1:
            raise ValueError("maxdepth must be at least 1")
        try:
            place = self._parse(path)
            self._parse(f"{format_path(*place)}/{prefix}")
        except OSError as error:
            if error.errno not in NO_NAME:
                raise
            return {} if detail else []
        if maxdepth is None:
            found = await self._tree(place, prefix, withdirs)
        else:
            found = await self._levels(place, prefix, maxdepth)
            if not withdirs:
                found = {name: info for name, info in found.items() if info["type"] == "file"}
        if found and place.key and withdirs:
            found[format_path(*place)] = infos.directory(format_path(*place))
        elif place.bucket and (withdirs or not found):
            try:
                own = await self._info(format_path(*place))
            except FileNotFoundError:
                own = None
            if own is not None and (withdirs if own["type"] == "directory" else not found):
                found[own["name"]] = own
        return {name: found[name] for name in sorted(found)} if detail else sorted(found)

    async def _tree(self, place: ObjectPath, beginning: str, withdirs: bool) -> dict[str, Info]:
        with os_errors(format_path(*place)):
            api = await self._connect()
            if place.bucket:
                try:
                    return await listing.tree(api, place, encode_key(beginning), withdirs=withdirs)
                except NoSuchBucket:
                    return {}
            found: dict[str, Info] = {}
            for bucket in await listing.buckets(api):
                if bucket["name"].startswith(beginning):
                    found |= {bucket["name"]: bucket} if withdirs else {}
                    found |= await listing.tree(api, ObjectPath(bucket["name"], b""), withdirs=withdirs)
            return found

    async def _files(self, path: Any, maxdepth: int | None = None) -> list[str]:
        """The files that *path*, or a list of paths, means with all below: a pattern what it matches, which is its
        first level. Raises `FileNotFoundError` for a path where nothing is."""
        found: set[str] = set()
        for each in path if isinstance(path, list) else [path]:
            root: str = self._strip_protocol(each)
            if not has_magic(root):
                below = await self._find(root, maxdepth=maxdepth)
                if not below:
                    await self._info(root)
                found.update(below)
                continue
            for name, info in (await self._glob(root, detail=True)).items():
                if info["type"] == "file":
                    found.add(name)
                elif maxdepth != 1:
                    found.update(await self._find(name, maxdepth=maxdepth and maxdepth - 1))
        return sorted(found)

    async def _levels(self, place: ObjectPath, beginning: str, depth: int) -> dict[str, Info]:
        """Files and directories of the first levels below a directory."""
        try:
            here = await self._listed(place, beginning) or []
        except FileNotFoundError:
            here = []
        found = {info["name"]: info for info in here}
        if depth > 1:
            below = [self._levels(self._parse(each["name"]), "", depth - 1) for each in _directories(here)]
            for more in await in_batches(below, self.batch_size):
                found |= more
        return found

    async def _du(self, path: str, total: bool = True, maxdepth: int | None = None, **options: Any) -> Any:
        """Bytes of all files below *path*: their sum, or by path."""
        found = await self._find(path, maxdepth=maxdepth, detail=True)
        sizes = {name: info["size"] for name, info in found.items()}
        return sum(sizes.values()) if total else sizes

    # --- of one file --------------------------------------------------------------------------------------------------

    async def _modified(self, path: str) -> datetime:
        """When the file's content last changed: S3's LastModified, aware and in UTC."""
        return _time_of(await self._info(path), "LastModified", path)

    async def _created(self, path: str) -> datetime:
        """When the file's content was written, since an object is never changed in place; of a bucket, when it was
        made."""
        info = await self._info(path)
        return _time_of(info, "created" if "created" in info else "LastModified", path)

    async def _ukey(self, path: str) -> str:
        """Another text whenever the file's content is another."""
        info = await self._info(path)
        facts = (info["name"], info["type"], info["size"], info.get("ETag"), str(info.get("LastModified")))
        return blake2b(repr(facts).encode(), digest_size=32).hexdigest()

    async def _checksum(self, path: str) -> int:
        """A number that says the same for the same content of the same size."""
        info = await self._info(path)
        return int(blake2b(repr((info["size"], info.get("ETag"))).encode(), digest_size=16).hexdigest(), 16)

    async def _metadata(self, path: str) -> dict[str, str]:
        """The user's metadata of a file, as S3's `x-amz-meta-…`."""
        return dict((await self._info(path, refresh=True)).get("metadata", {}))

    async def _getxattr(self, path: str, name: str) -> str | None:
        """One of `metadata`, None where it is not there."""
        return (await self._metadata(path)).get(name.lower())

    async def _sign(self, path: str, expiration: int = 100, **options: Any) -> str:
        """An address under which whoever has it may read the file over HTTP for *expiration* seconds, a week at most;
        it need not be there yet. Only over HTTP: in process there is no gateway to name (`ValueError`)."""
        place = self._parse(path)
        if not place.key:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if not 1 <= expiration <= WEEK_SECONDS:
            raise ValueError(f"an address is signed for 1 to {WEEK_SECONDS} seconds, not {expiration}")
        with os_errors(path):
            in_process = isinstance(self._at(), Path)
            if in_process:
                raise ValueError("in process there is no gateway whose address could be signed: give endpoint=")
            api = await self._connect()
        assert isinstance(api, RpcClient)
        return api.presigned_url(*place, int(expiration))

    sign = sync_wrapper(_sign)
    modified = sync_wrapper(_modified)
    created = sync_wrapper(_created)
    ukey = sync_wrapper(_ukey)
    checksum = sync_wrapper(_checksum)
    metadata = sync_wrapper(_metadata)
    getxattr = sync_wrapper(_getxattr)


def _directories(found: Sequence[Info]) -> list[Info]:
    return [each for each in found if each["type"] == "directory"]


def _time_of(info: Info, name: str, path: str) -> datetime:
    if name not in info:
        raise IsADirectoryError(errno.EISDIR, "a directory has no such time in S3", path)
    at: datetime = info[name]
    return at
