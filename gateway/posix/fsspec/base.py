"""The common base of the file system: its site or gateway, its event loop, its paths, and the cache of listings.

fsspec has no types: what comes from it is `Any`, in this sub-package only.
"""

from __future__ import annotations

import asyncio
import errno
import inspect
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
CONCURRENT_CALLS = 64
"""Concurrent calls of one bulk operation: enough to share packs and commits, far below the limits of the journal."""
NO_NAME = frozenset({errno.ENAMETOOLONG, errno.EILSEQ})
"""The errnos for a path that nothing can have."""
EVERYTHING = -1
"""The batch size for all calls at once."""

_numbers = itertools.count()


_FSSPEC_OPTIONS = {"asynchronous", "loop", "listings_expiry_time", "max_paths", "skip_instance_cache"}
"""Options that fsspec itself has, beside those that `FileSystemBase` names."""


def _own_options() -> list[str]:
    """Return the names of the options of `FileSystemBase`."""
    parameters = inspect.signature(FileSystemBase.__init__).parameters.values()
    return [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD and each.name != "self"]


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
        """In process, *site* is the site's folder or its config file; *user* or *access_key* selects the user, the root
        user by default. Over HTTP, *endpoint* is the gateway's `http(s)://host:port`; *key* and *secret*, or a
        *credentials_file*, select the user. Without *site* and *endpoint*, ENTREPOT_SITE or ENTREPOT_ENDPOINT is used
        at the time of use. *ca_file*: certificates that verify the gateway's, instead of the system's. *region*: the
        gateway's. *timeout*: seconds for each read of a response. *options*: those of fsspec. Raises `TypeError` for
        any other option.

        Listings are cached only with *use_listings_cache*: a listing takes microseconds in process and one request over
        HTTP, and other clients may write to the site."""
        if unknown := sorted(options.keys() - _FSSPEC_OPTIONS):
            raise TypeError(f"entrepot:// has no option {', '.join(unknown)}; it has {', '.join(_own_options())}")
        if site is not None and endpoint is not None:
            raise ValueError("site and endpoint exclude each other: give one of them")
        if endpoint is not None and (user is not None or access_key is not None):
            raise ValueError("user and access_key select the user in process only; over HTTP, give key and secret")
        if batch_size is not None and batch_size < 1 and batch_size != EVERYTHING:
            raise ValueError(f"batch_size must be at least 1, or -1 for all at once, not {batch_size}")
        super().__init__(use_listings_cache=use_listings_cache, batch_size=batch_size or CONCURRENT_CALLS, **options)
        self._site = site
        self._user = user
        self._access_key = access_key
        self._endpoint_options = EndpointOptions(
            endpoint or "", key or "", secret or "", os.fspath(credentials_file or ""), os.fspath(ca_file or ""),
            region or "", float(timeout),
        )  # fmt: skip
        self._number = next(_numbers)
        self._endpoint: Endpoint | None = None
        self._in_process: tuple[Site, FileApi] | None = None

    @property
    def loop(self) -> Any:
        """fsspec's event loop. A forked child gets a new one, so that it can use an inherited file system."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._loop = None if self.asynchronous else get_loop()
            self._intrans, self._transaction = False, None
            self.dircache.clear()
        return self._loop

    @property
    def fsid(self) -> str:
        """The identity of the tree: the same for all file systems of the same site or gateway."""
        at = self._at()
        return f"{PROTOCOL}-{at}" if isinstance(at, Path) else f"{PROTOCOL}-{at.scheme}://{at.host}"

    def _at(self) -> Path | Endpoint:
        """Return the site's folder or the gateway. Raises `ValueError`, `Misconfigured`."""
        site, endpoint = self._site, self._endpoint_options.endpoint
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
        if self._endpoint is None:
            self._endpoint = resolve_endpoint(self._endpoint_options)
        return self._endpoint

    async def _connect(self) -> FileApi:
        """Return the tree, on the running loop. Raises errors of `gateway.errors`."""
        connection = await acquire_connection(self._at(), self._number)
        if isinstance(connection, RpcClient):
            return connection
        if self._in_process is None or self._in_process[0] is not connection:
            self._in_process = (
                connection,
                InProcessApi(connection, caller_of(connection, self._user, self._access_key)),
            )
        return self._in_process[1]

    async def _close(self) -> None:
        """Release this file system's connection on the running loop. The next call opens another one."""
        self._in_process = self._endpoint = None
        await release_connection(self._number)

    close = sync_wrapper(_close)

    # --- paths --------------------------------------------------------------------------------------------------------

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        """Return `bucket/key`, without leading and trailing slashes; for a list, a list of them."""
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        return super()._strip_protocol(path).lstrip("/")

    def _parse(self, path: Any) -> ObjectPath:
        """Parse a path. Raises an `OSError` with an errno of `NO_NAME` if nothing can have that name."""
        try:
            parsed = parse_path(self._strip_protocol(path))
        except UnicodeEncodeError:
            raise OSError(errno.EILSEQ, os.strerror(errno.EILSEQ), str(path)) from None
        # Keys of S3 are shorter, but keys below a directory that was moved need not be.
        if max(map(len, parsed)) > PATH_BYTES_MOST:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), str(path))
        return parsed

    def _parse_in_bucket(self, path: Any) -> ObjectPath:
        """Parse the path of something inside a bucket. Raises `IsADirectoryError` for others."""
        parsed = self._parse(path)
        if not parsed.key:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return parsed

    async def _no_file_error(self, api: FileApi, parsed: ObjectPath, path: str) -> OSError:
        """Return the error for a path without a file: whether there is a directory, or nothing."""
        with suppress(NotFound):
            entry = await (api.look(*parsed) if parsed.key else api.bucket(parsed.bucket))
            if not isinstance(entry, ObjectInfo):
                return IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    # --- the cache of listings ----------------------------------------------------------------------------------------

    def invalidate_cache(self, path: str | None = None) -> None:
        """Drop the cached listings of *path*, of everything below it, and of the directories above it; None: all."""
        super().invalidate_cache(path)
        if path is None:
            self.dircache.clear()
            return
        stale: str = self._strip_protocol(path)
        for known in list(self.dircache):
            if known == stale or known.startswith(f"{stale}/") or stale.startswith(f"{known}/") or not known:
                self.dircache.pop(known, None)


async def return_error(work: Coroutine[Any, Any, Any]) -> Any:
    """Return the result of *work*, or the error that it raises."""
    try:
        return await work
    except Exception as error:  # noqa: BLE001 (it is the result)
        return error


async def in_batches(work: Iterable[Coroutine[Any, Any, Any]], batch_size: int) -> list[Any]:
    """Return the results of the coroutines, run *batch_size* at a time; -1: all at once, as in fsspec. The first error
    cancels the others, and is raised once none of them runs any more."""
    work = list(work)
    step = len(work) if batch_size == EVERYTHING else batch_size
    results: list[Any] = []
    try:
        for at in range(0, len(work), max(step, 1)):
            running = [asyncio.ensure_future(each) for each in work[at : at + step]]
            try:
                results += await asyncio.gather(*running)
            finally:
                for task in running:
                    task.cancel()
                await asyncio.gather(*running, return_exceptions=True)
    finally:
        for each in work:
            each.close()  # those that did not begin
    return results


def make_meta(content_type: str | None, metadata: dict[str, str] | None) -> ObjectMeta:
    """Return the metadata for the arguments of a program."""
    headers = {f"{META}{name.lower()}": str(value) for name, value in (metadata or {}).items()}
    if content_type is not None:
        headers["content-type"] = str(content_type)
    return ObjectMeta(headers)
