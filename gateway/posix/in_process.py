"""`FileApi` in process: a site's engine, called as one of its users.

A process that can read the site's files is trusted with the whole site: no secret is checked, and without a user's name
it acts as the root user.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import copy
from functools import wraps
from typing import Any, TypeVar, cast

from gateway.access.request import ChainedContext
from gateway.engine.types import (
    NO_CONDITIONS,
    Body,
    BucketInfo,
    ByteRange,
    Caller,
    Conditions,
    DeleteOne,
    ExpectedDigests,
    ObjectInfo,
    ObjectMeta,
    Opened,
    Page,
    PartInfo,
    Stored,
    WantedPart,
)
from gateway.errors import (
    AccessDenied,
    CommitterGone,
    DeleteMarker,
    EntrepotError,
    InvalidArgument,
    Misconfigured,
    NoSuchAccessKey,
    NoSuchKey,
    NoSuchName,
    NoSuchUser,
    NotADirectory,
    SessionExpired,
)
from gateway.journal.columns import PartSummary
from gateway.posix.api import Directory, FileApi, call_method
from gateway.posix.bodies import BytesBody, SignedBody
from gateway.posix.metadata import check_meta
from gateway.posix.paths import SLASH, ObjectPath
from gateway.posix.permissions import Alternatives, Need, needs_of
from gateway.site.site import Site

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Awaitable[Any]])

PART_NUMBERS = 10_000
_MUST_EXIST = Conditions(if_match=("*",))
_SELECT_USER = "SELECT name, id, tenant, root, disabled FROM user WHERE"


def checked(method: F) -> F:
    """Make a method of `InProcessApi` check by the policies of buckets that its caller may call it.

    The method runs with the buckets that policies let the caller use. A caller who may not list such a bucket gets
    AccessDenied in the place of an error that tells that a name does not exist, as in S3."""

    @wraps(method)
    async def run(self: InProcessApi, *arguments: Any, **named: Any) -> Any:
        if self._trusted:
            return await method(self, *arguments, **named)
        permitted = self._permitted(needs_of(method.__name__, arguments, named))
        try:
            return await method(permitted, *arguments, **named)
        except (NoSuchKey, NoSuchName):
            permitted.check_may_list()
            raise

    return cast("F", run)


class InProcessApi(FileApi):
    """A site, as one of its users sees it."""

    def __init__(self, site: Site, caller: Caller) -> None:
        self._journal = site.journal
        self._engine = site.engine
        self._caller = caller
        self._timing = site.timing
        self._trusted = caller.root and caller.context is None
        """A process acts as the root user for itself, and not for a client: policies do not bind it."""

    def _permitted(self, alternatives: Alternatives) -> InProcessApi:
        """Return the API of the caller with what policies allow for a call. Raises `AccessDenied` if they deny each
        of *alternatives*."""
        permitted, denied = None, None
        for needs in alternatives:
            try:
                granted = self._granted(needs)
            except AccessDenied as error:
                denied = denied or error
                continue
            if granted or permitted is None:
                permitted = granted
            if granted:
                break
        if permitted is None:
            raise denied or AccessDenied("no policy allows the call")
        if not permitted:
            return self
        api = copy(self)
        vars(api)["_caller"] = self._caller._replace(granted=permitted)
        return api

    def _granted(self, needs: Sequence[Need]) -> dict[str, int]:
        """Return the buckets for which policies grant all of *needs*, with their owners. Raises `AccessDenied` for one
        that is denied."""
        granted: dict[str, int] = {}
        for action, bucket, key, context, subtree in needs:
            if subtree:
                self._engine.check_all_keys(self._caller, bucket)
            values = ChainedContext(context, self._caller.context) if context else self._caller.context
            owner = self._engine.granted_by_policy(self._caller, action, bucket, key, context=values)
            granted[bucket] = owner if granted.get(bucket, owner) else 0
        return {bucket: owner for bucket, owner in granted.items() if owner}

    def check_may_list(self) -> None:
        """Raise `AccessDenied` if the caller uses buckets by a policy that does not allow listing them."""
        caller = self._caller
        for bucket in caller.granted:
            if not self._engine.granted_by_policy(caller, "s3:ListBucket", bucket):
                raise AccessDenied("the caller may not list the bucket")

    async def compound(self, calls: Sequence[tuple[str, tuple[Any, ...]]], *, stop: bool = False) -> list[Any]:
        results: list[Any] = []
        for name, arguments in calls:
            try:
                results.append(await call_method(self, name, arguments))
            except EntrepotError as error:
                results.append(error)
                if stop:
                    break
        return results + [None] * (len(calls) - len(results))

    @checked
    async def buckets(self, after: str = "") -> tuple[list[BucketInfo], str | None]:
        return await self._engine.list_buckets(self._caller, after=after, limit=1000)

    @checked
    async def bucket(self, name: str) -> BucketInfo:
        return await self._engine.head_bucket(self._caller, name)

    @checked
    async def make_bucket(self, name: str) -> None:
        await self._engine.create_bucket(self._caller, name, "")

    @checked
    async def drop_bucket(self, name: str) -> None:
        await self._engine.delete_bucket(self._caller, name)

    @checked
    async def look(self, bucket: str, key: bytes) -> ObjectInfo | Directory:
        try:
            return (await self._engine.head(self._caller, bucket, key)).info
        except (NoSuchKey, DeleteMarker):
            pass
        if not await self._is_directory(bucket, key):
            raise NoSuchName(key)
        return Directory(made=await self._is_object(bucket, key + SLASH))

    async def _is_object(self, bucket: str, key: bytes) -> bool:
        try:
            await self._engine.head(self._caller, bucket, key)
        except (NoSuchKey, DeleteMarker):
            return False
        return True

    async def _is_directory(self, bucket: str, key: bytes) -> bool:
        if not ObjectPath(bucket, key).is_posix:
            page = await self._engine.list(self._caller, bucket, key + SLASH, limit=1)
            return bool(page.keys)
        try:
            return (await self._engine.stat(self._caller, bucket, key)).is_dir
        except (NoSuchName, NotADirectory):
            return False

    @checked
    async def page(self, bucket: str, prefix: bytes, delimiter: bytes = b"", after: bytes = b"") -> Page:
        return await self._engine.list(self._caller, bucket, prefix, delimiter, after, 1000)

    @checked
    async def open(
        self, bucket: str, key: bytes, wanted: ByteRange | None = None, conditions: Conditions = NO_CONDITIONS
    ) -> Opened:
        return await self._engine.open(self._caller, bucket, key, byte_range=wanted, conditions=conditions)

    @checked
    async def put(
        self, bucket: str, key: bytes, body: Body, size: int, meta: ObjectMeta, conditions: Conditions = NO_CONDITIONS
    ) -> Stored:
        def put() -> Awaitable[Stored]:
            return self._engine.put(self._caller, bucket, key, body, _promise(body, size), meta, conditions)

        check_meta(meta)
        return await (
            self._retry_lost_session(put) if isinstance(body, BytesBody) and conditions == NO_CONDITIONS else put()
        )

    @checked
    async def copy(
        self, bucket: str, key: bytes, to_bucket: str, to_key: bytes, meta: ObjectMeta | None = None,
        conditions: Conditions = NO_CONDITIONS,
    ) -> Stored:  # fmt: skip
        if meta is not None:
            check_meta(meta)
        stored, _ = await self._engine.copy(self._caller, bucket, key, None, conditions, to_bucket, to_key, meta, None)
        return stored

    @checked
    async def move(self, bucket: str, key: bytes, to_bucket: str, to_key: bytes) -> None:
        await self._engine.move(self._caller, bucket, key, to_bucket, to_key)

    @checked
    async def remove(self, bucket: str, keys: Sequence[bytes], *, must_exist: bool) -> list[EntrepotError | None]:
        conditions = _MUST_EXIST if must_exist else NO_CONDITIONS
        deletes = [DeleteOne(key, conditions=conditions) for key in keys]
        results = await self._engine.delete_many(self._caller, bucket, deletes)
        return [each if isinstance(each, EntrepotError) else None for each in results]

    @checked
    async def rename(self, bucket: str, path: bytes, to_path: bytes, *, directory: bool) -> None:
        if not directory and await self._is_directory(bucket, path):
            raise InvalidArgument(f"the object {path!r} has the name of a directory, which POSIX means by it")
        await self._engine.rename(
            self._caller, bucket, _require_posix_path(bucket, path), _require_posix_path(bucket, to_path)
        )

    @checked
    async def mkdir(self, bucket: str, path: bytes) -> None:
        await self._engine.mkdir(self._caller, bucket, _require_posix_path(bucket, path))

    @checked
    async def rmdir(self, bucket: str, path: bytes) -> None:
        await self._engine.rmdir(self._caller, bucket, _require_posix_path(bucket, path))

    async def _retry_lost_session(self, write: Callable[[], Awaitable[T]]) -> T:
        """Run *write*, and repeat it if this process lost its session meanwhile, until `session_seconds` have passed.

        A process loses its session if something holds the interpreter for longer than the lease. *write* must be
        harmless to repeat."""
        clock, durations = self._timing.clock, self._timing.files
        deadline = 0.0
        while True:
            try:
                return await write()
            except (SessionExpired, CommitterGone):  # also if a new session exists by now
                deadline = deadline or clock.monotonic() + durations.session_seconds
                if clock.monotonic() > deadline:
                    raise
            await clock.sleep(durations.session_look_seconds)
            while not self._journal.session and clock.monotonic() < deadline:  # polled: no event announces a session
                await clock.sleep(durations.session_look_seconds)

    @checked
    async def begin_upload(self, bucket: str, key: bytes, meta: ObjectMeta) -> str:
        check_meta(meta)
        return await self._retry_lost_session(
            lambda: self._engine.create_upload(self._caller, bucket, key, meta, "", "")
        )

    @checked
    async def put_part(self, bucket: str, key: bytes, upload: str, number: int, body: Body, size: int) -> PartInfo:
        def put() -> Awaitable[PartInfo]:
            return self._engine.put_part(self._caller, bucket, key, upload, number, body, _promise(body, size))

        return await (self._retry_lost_session(put) if isinstance(body, BytesBody) else put())

    @checked
    async def copy_part(
        self, bucket: str, key: bytes, upload: str, number: int, source: bytes, wanted: ByteRange, etag: str
    ) -> PartInfo:
        unchanged = Conditions(if_match=(etag,))
        copied = await self._engine.copy_part(
            self._caller, bucket, key, upload, number, bucket, source, None, wanted, unchanged
        )
        return copied.part

    @checked
    async def tags(self, bucket: str, key: bytes) -> Mapping[str, str]:
        tags, _ = await self._engine.get_tags(self._caller, bucket, key, None)
        return tags

    @checked
    async def parts(self, bucket: str, key: bytes) -> Sequence[PartSummary]:
        return await self._engine.object_parts(self._caller, bucket, key, None, 0, PART_NUMBERS)

    @checked
    async def complete_upload(
        self, bucket: str, key: bytes, upload: str, parts: list[WantedPart], conditions: Conditions = NO_CONDITIONS
    ) -> Stored:
        return await self._retry_lost_session(
            lambda: self._engine.complete_upload(self._caller, bucket, key, upload, parts, conditions)
        )

    @checked
    async def abort_upload(self, bucket: str, key: bytes, upload: str) -> None:
        await self._engine.abort_upload(self._caller, bucket, key, upload)


def _promise(body: Body, size: int) -> ExpectedDigests:
    return ExpectedDigests(size=size, sha256=body.sha256 if isinstance(body, SignedBody) else None)


def _require_posix_path(bucket: str, path: bytes) -> bytes:
    if not ObjectPath(bucket, path).is_posix:
        raise InvalidArgument(f"{path!r} contains an empty name, which only keys of S3 may have")
    return path


def caller_of(site: Site, user: str | None = None, access_key: str | None = None) -> Caller:
    """Return the user with the name *user*, or with the *access_key*; without either, the root user.

    Raises `NoSuchUser`, `NoSuchAccessKey`, and `Misconfigured` if both are given."""
    if user is not None and access_key is not None:
        raise Misconfigured("give the user or an access key, not both")
    if access_key is not None:
        credential = site.engine.credential(access_key)
        if credential is None:
            raise NoSuchAccessKey(access_key)
        return credential[1]
    if user is not None:
        rows = site.store.query(f"{_SELECT_USER} name = ?", (user,))
    else:
        rows = site.store.query(f"{_SELECT_USER} root = 1 ORDER BY made_ns LIMIT 1")
    if not rows:
        raise NoSuchUser(user or "root")
    name, number, tenant, root, disabled = rows[0]
    if disabled:
        raise AccessDenied(f"the user {name} is disabled")
    return Caller(name, number, tenant, bool(root))
