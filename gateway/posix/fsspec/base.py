"""The file system's ground: which site, on which loop, as whom; its paths, and the cache of listings.

fsspec has no types: what comes from it is `Any`, and stays in this room.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from fsspec.asyn import AsyncFileSystem, get_loop, sync_wrapper

from gateway.config import CONFIG_NAME
from gateway.engine.types import ObjectInfo, ObjectMeta
from gateway.errors import NotFound
from gateway.posix.api import FileApi
from gateway.posix.fsspec.connections import acquire_connection, release_connection
from gateway.posix.in_process import InProcessApi, caller_of
from gateway.posix.metadata import META
from gateway.posix.paths import PROTOCOL, ObjectPath, parse_path
from gateway.posix.rpc.client import RpcClient
from gateway.posix.rpc.endpoint import ENDPOINT_VARIABLE, TIMEOUT_SECONDS, Endpoint, EndpointOptions, resolve_endpoint
from gateway.posix.rpc.schema import BYTES_MOST as PATH_BYTES_MOST
from gateway.site.site import Site

SITE_VARIABLE = "ENTREPOT_SITE"
AT_ONCE = 64
"""Calls that one bulk operation has on their way: enough to share packs and commits, far from the journal's limits."""
NO_NAME = frozenset({errno.ENAMETOOLONG, errno.EILSEQ})
"""What a path is told that names nothing which could be."""
EVERYTHING = -1
"""As a batch's size: all at once."""

_numbers = itertools.count()


class FileSystemBase(AsyncFileSystem):  # type: ignore[misc]  # fsspec has no types
    """What the parts of `EntrepotFileSystem` share."""

    protocol = PROTOCOL
    _pid: int
    _loop: Any

    def __init__(
        self,
        site: str | os.PathLike[str] | None = None,
        user: str | None = None,
        access_key: str | None = None,
        use_listings_cache: bool = False,
        batch_size: int | None = None,
        endpoint: str | None = None,
        key: str | None = None,
        secret: str | None = None,
        credentials_file: str | os.PathLike[str] | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        region: str | None = None,
        timeout: float = TIMEOUT_SECONDS,
        **options: Any,
    ) -> None:
        """In process: *site* is its directory, or the config file in it. *user* or *access_key*: who acts, the root
        user without either. Over HTTP: *endpoint* is a gateway's `http(s)://host:port`; *key* and *secret*, or a
        *credentials_file*, say who acts. Without either of *site* and *endpoint* it is what ENTREPOT_SITE or
        ENTREPOT_ENDPOINT names at the time. *ca_file*: certificates that vouch for the gateway's, instead of the
        system's; *region*: the gateway's; *timeout*: seconds for an answer to go on.

        Listings are looked up anew unless *use_listings_cache*: that takes microseconds in process and a trip over
        HTTP, and others may write to the site."""
        if site is not None and endpoint is not None:
            raise ValueError("site and endpoint are two ways to the same: give one of them")
        if endpoint is not None and (user is not None or access_key is not None):
            raise ValueError("over HTTP it is key and secret that say who acts; user and access_key do in process")
        if batch_size is not None and batch_size < 1 and batch_size != EVERYTHING:
            raise ValueError(f"batch_size is a number from 1 on, or -1 for all at once, not {batch_size}")
        super().__init__(use_listings_cache=use_listings_cache, batch_size=batch_size or AT_ONCE, **options)
        self._site = site
        self._user = user
        self._access_key = access_key
        self._gateway_options = EndpointOptions(
            endpoint or "", key or "", secret or "", os.fspath(credentials_file or ""), os.fspath(ca_file or ""),
            region or "", float(timeout),
        )  # fmt: skip
        self._number = next(_numbers)
        self._gateway: Endpoint | None = None
        self._known: tuple[Site, FileApi] | None = None

    @property
    def loop(self) -> Any:
        """fsspec's own loop. In a forked child its new one: whoever inherits a file system can go on with it."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._loop = None if self.asynchronous else get_loop()
            self._intrans, self._transaction = False, None
            self.dircache.clear()
        return self._loop

    @property
    def fsid(self) -> str:
        """Which tree this is: the same for file systems over the same site or gateway."""
        at = self._at()
        return f"{PROTOCOL}-{at}" if isinstance(at, Path) else f"{PROTOCOL}-{at.scheme}://{at.host}"

    def _at(self) -> Path | Endpoint:
        """Where the tree is. Raises `ValueError`, `Misconfigured`."""
        site, endpoint = self._site, self._gateway_options.endpoint
        if not site and not endpoint:
            site, endpoint = os.environ.get(SITE_VARIABLE), os.environ.get(ENDPOINT_VARIABLE, "")
            if site and endpoint:
                raise ValueError(f"{SITE_VARIABLE} and {ENDPOINT_VARIABLE} are both set: give site= or endpoint=")
            if not site and not endpoint:
                raise ValueError(
                    f"{PROTOCOL}:// needs a site or a gateway: give site=DIR or endpoint=URL, or set {SITE_VARIABLE} "
                    f"or {ENDPOINT_VARIABLE}"
                )
        if site:
            folder = Path(site).expanduser().absolute()
            return folder.parent if folder.name == CONFIG_NAME else folder
        if self._gateway is None:
            self._gateway = resolve_endpoint(self._gateway_options)
        return self._gateway

    async def _connect(self) -> FileApi:
        """The verbs, on the running loop. Raises `gateway.errors`."""
        opened = await acquire_connection(self._at(), self._number)
        if isinstance(opened, RpcClient):
            return opened
        if self._known is None or self._known[0] is not opened:
            self._known = (opened, InProcessApi(opened, caller_of(opened, self._user, self._access_key)))
        return self._known[1]

    async def _close(self) -> None:
        """End this file system's session on the running loop; using it again opens another one."""
        self._known = self._gateway = None
        await release_connection(self._number)

    close = sync_wrapper(_close)

    # --- paths --------------------------------------------------------------------------------------------------------

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        """`bucket/key`, without slashes around; a list of them for a list."""
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        return super()._strip_protocol(path).lstrip("/")

    def _parse(self, path: Any) -> ObjectPath:
        """What *path* names. Raises an `OSError` of `NO_NAME` where nothing can have such a name."""
        try:
            place = parse_path(self._strip_protocol(path))
        except UnicodeEncodeError:
            raise OSError(errno.EILSEQ, os.strerror(errno.EILSEQ), str(path)) from None
        # S3's keys are shorter; those below a directory that moved need not be
        if max(map(len, place)) > PATH_BYTES_MOST:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), str(path))
        return place

    def _parse_in_bucket(self, path: Any) -> ObjectPath:
        """The place of something inside a bucket."""
        place = self._parse(path)
        if not place.key:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return place

    async def _absent(self, api: FileApi, place: ObjectPath, path: str) -> OSError:
        """Why there is no file at *path*: nothing is there, or a directory."""
        with suppress(NotFound):
            there = await (api.look(*place) if place.key else api.bucket(place.bucket))
            if not isinstance(there, ObjectInfo):
                return IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    # --- the cache of listings ----------------------------------------------------------------------------------------

    def invalidate_cache(self, path: str | None = None) -> None:
        """Forget the listings of *path*, of all below it, and of the directories above it; all for None."""
        super().invalidate_cache(path)
        if path is None:
            self.dircache.clear()
            return
        gone: str = self._strip_protocol(path)
        for known in list(self.dircache):
            if known == gone or known.startswith(f"{gone}/") or gone.startswith(f"{known}/") or not known:
                self.dircache.pop(known, None)


async def return_error(work: Coroutine[Any, Any, Any]) -> Any:
    """What *work* answers, or the error that it raises."""
    try:
        return await work
    except Exception as error:  # noqa: BLE001 (it is the answer)
        return error


async def in_batches(work: Iterable[Coroutine[Any, Any, Any]], batch_size: int) -> list[Any]:
    """What the coroutines answer, *batch_size* of them at a time; -1: all at once, as fsspec means it. The first error
    cancels the rest, and is raised once nothing runs any more."""
    work = list(work)
    step = len(work) if batch_size == EVERYTHING else batch_size
    found: list[Any] = []
    try:
        for at in range(0, len(work), max(step, 1)):
            running = [asyncio.ensure_future(each) for each in work[at : at + step]]
            try:
                found += await asyncio.gather(*running)
            finally:
                for task in running:
                    task.cancel()
                await asyncio.gather(*running, return_exceptions=True)
    finally:
        for each in work:
            each.close()  # those that never began
    return found


def make_meta(content_type: str | None, metadata: dict[str, str] | None) -> ObjectMeta:
    """What a program says of a file besides its bytes."""
    headers = {f"{META}{name.lower()}": str(value) for name, value in (metadata or {}).items()}
    if content_type is not None:
        headers["content-type"] = str(content_type)
    return ObjectMeta(headers)
