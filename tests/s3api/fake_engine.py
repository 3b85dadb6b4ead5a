"""A front desk that keeps everything in memory: enough of the engine for tests of the protocol around it."""

from __future__ import annotations

import base64
import hashlib
import time
from bisect import bisect_right
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from gateway import errors
from gateway.engine.conditions import check_read, check_source
from gateway.engine.ranges import resolve
from gateway.engine.types import (
    NO_CONDITIONS,
    Body,
    BucketInfo,
    Buffer,
    ByteRange,
    Caller,
    Conditions,
    Deleted,
    DeleteOne,
    Listed,
    ListedVersion,
    Meta,
    ObjectInfo,
    Opened,
    Page,
    PartInfo,
    PartPage,
    Promised,
    Stored,
    UploadInfo,
    UploadPage,
    VersionPage,
    WantedPart,
)
from gateway.journal.packed import Checksum, PartFact
from s3api.checksums import compute

ALICE = Caller("alice", 7, 1, root=False)
BOB = Caller("bob", 8, 1, root=False)
KEYS = {"AKALICE": ("alice-secret", ALICE), "AKBOB": ("bob-secret", BOB)}


@dataclass
class Thing:
    data: bytes
    etag: str
    headers: dict[str, str]
    tags: dict[str, str]
    checksum: Checksum | None
    modified_ns: int
    parts: list[PartFact] = field(default_factory=list)
    marker: bool = False
    version: str = "null"


@dataclass
class Upload:
    info: UploadInfo
    meta: Meta
    parts: dict[int, tuple[PartInfo, bytes]] = field(default_factory=dict)
    done: tuple[list[WantedPart], Stored] | None = None


@dataclass
class Bucket:
    info: BucketInfo
    things: dict[bytes, list[Thing]] = field(default_factory=dict)  # newest last
    uploads: dict[str, Upload] = field(default_factory=dict)


class FakeEngine:
    def __init__(self) -> None:
        self.buckets: dict[str, Bucket] = {}
        self.whole_bytes = 64 << 10
        self.clock = time.time_ns
        self.ids = 0

    # --- credentials, buckets ----------------------------------------------------------------------------------------

    def credential(self, access_key: str) -> tuple[str, Caller] | None:
        return KEYS.get(access_key)

    def _bucket(self, caller: Caller, name: str) -> Bucket:
        bucket = self.buckets.get(name)
        if bucket is None:
            raise errors.NoSuchBucket(name)
        if bucket.info.owner != caller.user_id and not caller.root:
            raise errors.AccessDenied("not yours")
        return bucket

    async def create_bucket(self, caller: Caller, name: str, region: str) -> BucketInfo:
        if len(name) < 3 or not name.replace("-", "").replace(".", "").isalnum() or name != name.lower():
            raise errors.InvalidBucketName(name)
        if name in self.buckets:
            owned = self.buckets[name].info.owner == caller.user_id
            raise errors.BucketOwned(name) if owned else errors.BucketExists(name)
        info = BucketInfo(name, region, self.clock(), caller.user_id, 0)
        self.buckets[name] = Bucket(info)
        return info

    async def delete_bucket(self, caller: Caller, name: str) -> None:
        if self._bucket(caller, name).things:
            raise errors.BucketNotEmpty(name)
        del self.buckets[name]

    async def head_bucket(self, caller: Caller, name: str) -> BucketInfo:
        return self._bucket(caller, name).info

    async def list_buckets(
        self, caller: Caller, prefix: str = "", after: str = "", limit: int = 10000
    ) -> tuple[list[BucketInfo], str | None]:
        found = [
            bucket.info
            for name, bucket in sorted(self.buckets.items())
            if bucket.info.owner == caller.user_id and name.startswith(prefix) and name > after
        ]
        return found[:limit], found[limit - 1].name if len(found) > limit else None

    async def set_versioning(self, caller: Caller, bucket: str, versioning: int) -> None:
        found = self._bucket(caller, bucket)
        info = found.info
        found.info = BucketInfo(info.name, info.region, info.made_ns, info.owner, int(versioning))

    # --- objects -----------------------------------------------------------------------------------------------------

    def _next(self) -> str:
        self.ids += 1
        return f"{self.ids:016x}"

    def _named(self, bucket: Bucket, thing: Thing) -> str | None:
        return thing.version if bucket.info.versioning or thing.version != "null" else None

    async def _collect(self, body: Body, promised: Promised, algorithm: str | None) -> tuple[bytes, Checksum]:
        data = b"".join([bytes(chunk) async for chunk in body])
        if promised.size is not None and promised.size != len(data):
            raise errors.IncompleteBody(promised.size, len(data))
        if promised.md5 is not None and hashlib.md5(data).digest() != promised.md5:
            raise errors.BadDigest(base64.b64encode(promised.md5).decode(), "other")
        if promised.sha256 is not None and hashlib.sha256(data).hexdigest() != promised.sha256:
            raise errors.BadDigest(promised.sha256, hashlib.sha256(data).hexdigest())
        for wanted in (promised.checksum, body.trailing_checksum()):
            if wanted is not None and compute(wanted[0], data) != wanted[1]:
                raise errors.BadChecksum(wanted[0], wanted[1], compute(wanted[0], data))
        name = algorithm or "CRC64NVME"
        return data, Checksum(name, "FULL_OBJECT", compute(name, data))

    def _check_write(self, bucket: Bucket, key: bytes, conditions: Conditions) -> None:
        current = (bucket.things.get(key) or [None])[-1]
        alive = current is not None and not current.marker
        if conditions.if_none_match and alive:
            raise errors.PreconditionFailed("If-None-Match")
        if conditions.if_match:
            if not alive:
                raise errors.NoSuchKey(key)
            if "*" not in conditions.if_match and current.etag not in conditions.if_match:
                raise errors.PreconditionFailed("If-Match")
        if alive and conditions.if_size is not None and conditions.if_size != len(current.data):
            raise errors.PreconditionFailed("x-amz-if-match-size")

    def _store(self, bucket: Bucket, key: bytes, thing: Thing) -> Stored:
        if not 0 < len(key) <= 1024:
            raise errors.InvalidKey("Your key is too long")
        things = bucket.things.setdefault(key, [])
        if bucket.info.versioning == 1:
            thing.version = self._next()
        else:
            things[:] = [each for each in things if each.version != "null"]
        things.append(thing)
        return Stored(thing.etag, self._named(bucket, thing), len(thing.data), thing.modified_ns, thing.checksum)

    async def put(
        self,
        caller: Caller,
        bucket: str,
        key: bytes,
        body: Body,
        promised: Promised,
        meta: Meta,
        conditions: Conditions = NO_CONDITIONS,
        checksum_algorithm: str | None = None,
    ) -> Stored:
        found = self._bucket(caller, bucket)
        data, checksum = await self._collect(body, promised, checksum_algorithm)
        self._check_write(found, key, conditions)
        thing = Thing(data, hashlib.md5(data).hexdigest(), dict(meta.headers), dict(meta.tags), checksum, self.clock())
        return self._store(found, key, thing)

    def _find(self, caller: Caller, bucket: str, key: bytes, version: str | None) -> tuple[Bucket, Thing]:
        found = self._bucket(caller, bucket)
        things = found.things.get(key)
        if not things:
            raise errors.NoSuchVersion(key, version) if version else errors.NoSuchKey(key)
        if version is None:
            thing = things[-1]
        else:
            named = [each for each in things if each.version == version]
            if not named:
                raise errors.NoSuchVersion(key, version)
            thing = named[0]
        if thing.marker:
            raise errors.DeleteMarker(key, thing.version, thing is things[-1])
        return found, thing

    def _info(self, bucket: Bucket, key: bytes, thing: Thing) -> ObjectInfo:
        return ObjectInfo(
            key,
            len(thing.data),
            thing.etag,
            thing.modified_ns,
            self._named(bucket, thing),
            bucket.things[key][-1] is thing,
            thing.headers,
            len(thing.tags),
            thing.checksum,
            len(thing.parts),
            bucket.info.owner,
        )

    async def open(
        self,
        caller: Caller,
        bucket: str,
        key: bytes,
        version: str | None = None,
        byte_range: ByteRange | None = None,
        part: int | None = None,
        conditions: Conditions = NO_CONDITIONS,
    ) -> Opened:
        found, thing = self._find(caller, bucket, key, version)
        check_read(conditions, thing.etag, thing.modified_ns)
        fact = None
        if part is not None:
            parts = thing.parts or [PartFact(1, len(thing.data), thing.etag, 0, "")]
            at = [index for index, each in enumerate(parts) if each.number == part]
            if not at:
                raise errors.InvalidRange(f"part {part}", len(thing.data))
            fact = parts[at[0]]
            start, length = sum(each.size for each in parts[: at[0]]), fact.size
        else:
            start, length = resolve(byte_range, len(thing.data))
        data = thing.data[start : start + length]
        whole = data if length <= self.whole_bytes else None
        return Opened(self._info(found, key, thing), start, length, fact, whole, _pieces(data))

    async def head(
        self,
        caller: Caller,
        bucket: str,
        key: bytes,
        version: str | None = None,
        part: int | None = None,
        byte_range: ByteRange | None = None,
        conditions: Conditions = NO_CONDITIONS,
    ) -> Opened:
        return await self.open(caller, bucket, key, version, byte_range, part, conditions)

    async def delete(
        self,
        caller: Caller,
        bucket: str,
        key: bytes,
        version: str | None = None,
        conditions: Conditions = NO_CONDITIONS,
    ) -> Deleted:
        found = self._bucket(caller, bucket)
        self._check_write(found, key, conditions)
        things = found.things.get(key, [])
        if version is not None:
            gone = [each for each in things if each.version == version]
            things[:] = [each for each in things if each.version != version]
            if not things:
                found.things.pop(key, None)
            return Deleted(version, bool(gone) and gone[0].marker)
        if not found.info.versioning:
            found.things.pop(key, None)
            return Deleted(None, False)
        marker = Thing(b"", "", {}, {}, None, self.clock(), marker=True)
        self._store(found, key, marker)
        return Deleted(marker.version, True)

    async def delete_many(
        self, caller: Caller, bucket: str, wanted: list[DeleteOne]
    ) -> list[Deleted | errors.EntrepotError]:
        self._bucket(caller, bucket)
        answers: list[Deleted | errors.EntrepotError] = []
        for each in wanted:
            try:
                answers.append(await self.delete(caller, bucket, each.key, each.version, each.conditions))
            except errors.EntrepotError as error:
                answers.append(error)
        return answers

    async def copy(
        self,
        caller: Caller,
        source_bucket: str,
        source_key: bytes,
        source_version: str | None,
        source_conditions: Conditions,
        bucket: str,
        key: bytes,
        meta: Meta | None,
        tags: dict[str, str] | None,
        conditions: Conditions,
        checksum_algorithm: str | None,
    ) -> tuple[Stored, str | None]:
        source, thing = self._find(caller, source_bucket, source_key, source_version)
        check_source(source_conditions, thing.etag, thing.modified_ns)
        found = self._bucket(caller, bucket)
        self._check_write(found, key, conditions)
        checksum = thing.checksum
        if checksum_algorithm is not None:
            checksum = Checksum(checksum_algorithm, "FULL_OBJECT", compute(checksum_algorithm, thing.data))
        made = Thing(
            thing.data,
            thing.etag,
            dict(thing.headers if meta is None else meta.headers),
            dict(thing.tags if tags is None else tags),
            checksum,
            self.clock(),
        )
        return self._store(found, key, made), self._named(source, thing)

    # --- listings ----------------------------------------------------------------------------------------------------

    async def list(
        self,
        caller: Caller,
        bucket: str,
        prefix: bytes = b"",
        delimiter: bytes = b"",
        after: bytes = b"",
        limit: int = 1000,
    ) -> Page:
        found = self._bucket(caller, bucket)
        keys, prefixes, last = [], [], b""
        for key in sorted(found.things):
            thing = found.things[key][-1]
            if not key.startswith(prefix) or thing.marker or key <= after:
                continue
            end = key.find(delimiter, len(prefix)) if delimiter else -1
            rolled = key[: end + len(delimiter)] if end >= 0 else b""
            if rolled and (rolled == last or rolled <= after):
                continue
            if len(keys) + len(prefixes) == limit:
                return Page(keys, prefixes, last)
            last = rolled or key
            if rolled:
                prefixes.append(rolled)
            else:
                check = thing.checksum
                keys.append(
                    Listed(
                        key,
                        len(thing.data),
                        thing.etag,
                        thing.modified_ns,
                        found.info.owner,
                        check.algorithm if check else "",
                        check.type if check else "",
                    )
                )
        return Page(keys, prefixes, None)

    async def list_versions(
        self,
        caller: Caller,
        bucket: str,
        prefix: bytes = b"",
        delimiter: bytes = b"",
        after_key: bytes = b"",
        after_version: str = "",
        limit: int = 1000,
    ) -> VersionPage:
        found = self._bucket(caller, bucket)
        rows = [
            ListedVersion(
                key,
                each.version,
                each is things[-1],
                each.marker,
                len(each.data),
                each.etag,
                each.modified_ns,
                found.info.owner,
            )
            for key, things in sorted(found.things.items())
            for each in reversed(things)
            if key.startswith(prefix)
        ]
        at = 0
        if after_key:
            keys = [row.key for row in rows]
            at = bisect_right(keys, after_key)
            if after_version:
                at = [(row.key, row.version) for row in rows].index((after_key, after_version)) + 1
        page = rows[at : at + limit]
        more = len(rows) > at + limit
        return VersionPage(page, [], page[-1].key if more else None, page[-1].version if more else None)

    # --- uploads -----------------------------------------------------------------------------------------------------

    async def create_upload(
        self, caller: Caller, bucket: str, key: bytes, meta: Meta, checksum_algorithm: str, checksum_type: str
    ) -> str:
        found = self._bucket(caller, bucket)
        name = self._next()
        info = UploadInfo(key, name, caller.user_id, self.clock(), checksum_algorithm, checksum_type)
        found.uploads[name] = Upload(info, meta)
        return name

    def _upload(self, caller: Caller, bucket: str, key: bytes, upload: str) -> Upload:
        found = self._bucket(caller, bucket).uploads.get(upload)
        if found is None or found.info.key != key:
            raise errors.NoSuchUpload(upload)
        return found

    async def put_part(
        self, caller: Caller, bucket: str, key: bytes, upload: str, number: int, body: Body, promised: Promised
    ) -> PartInfo:
        found = self._upload(caller, bucket, key, upload)
        data, checksum = await self._collect(body, promised, found.info.checksum or None)
        part = PartInfo(number, len(data), hashlib.md5(data).hexdigest(), self.clock(), checksum.value)
        found.parts[number] = (part, data)
        return part

    async def copy_part(
        self,
        caller: Caller,
        bucket: str,
        key: bytes,
        upload: str,
        number: int,
        source_bucket: str,
        source_key: bytes,
        source_version: str | None,
        byte_range: ByteRange | None,
        source_conditions: Conditions,
    ) -> tuple[PartInfo, str | None]:
        found = self._upload(caller, bucket, key, upload)
        source, thing = self._find(caller, source_bucket, source_key, source_version)
        check_source(source_conditions, thing.etag, thing.modified_ns)
        start, length = resolve(byte_range, len(thing.data))
        data = thing.data[start : start + length]
        value = compute(found.info.checksum, data) if found.info.checksum else ""
        part = PartInfo(number, len(data), hashlib.md5(data).hexdigest(), self.clock(), value)
        found.parts[number] = (part, data)
        return part, self._named(source, thing)

    async def list_parts(
        self, caller: Caller, bucket: str, key: bytes, upload: str, after_number: int = 0, limit: int = 1000
    ) -> PartPage:
        found = self._upload(caller, bucket, key, upload)
        parts = [found.parts[number][0] for number in sorted(found.parts) if number > after_number]
        return PartPage(found.info, parts[:limit], parts[limit - 1].number if len(parts) > limit else None)

    async def list_uploads(
        self,
        caller: Caller,
        bucket: str,
        prefix: bytes = b"",
        delimiter: bytes = b"",
        after_key: bytes = b"",
        after_upload: str = "",
        limit: int = 1000,
    ) -> UploadPage:
        found = self._bucket(caller, bucket)
        rows = sorted(
            (each.info for each in found.uploads.values() if each.done is None and each.info.key.startswith(prefix)),
            key=lambda info: (info.key, info.upload),
        )
        rows = [row for row in rows if not after_key or (row.key, row.upload) > (after_key, after_upload or "~")]
        page, more = rows[:limit], len(rows) > limit
        return UploadPage(page, [], page[-1].key if more else None, page[-1].upload if more else None)

    async def complete_upload(
        self,
        caller: Caller,
        bucket: str,
        key: bytes,
        upload: str,
        wanted: list[WantedPart],
        conditions: Conditions = NO_CONDITIONS,
        promised_checksum: tuple[str, str] | None = None,
        promised_type: str | None = None,
        promised_size: int | None = None,
    ) -> Stored:
        found = self._upload(caller, bucket, key, upload)
        if found.done is not None and found.done[0] == wanted:
            return found.done[1]
        numbers = [each.number for each in wanted]
        if numbers != sorted(set(numbers)):
            raise errors.InvalidPartOrder
        data, facts = b"", []
        for index, each in enumerate(wanted):
            part = found.parts.get(each.number)
            if part is None or part[0].etag != each.etag:
                raise errors.InvalidPart(f"part {each.number}")
            if index < len(wanted) - 1 and part[0].size < 5 << 20:
                raise errors.EntityTooSmall(each.number, part[0].size)
            data += part[1]
            facts.append(PartFact(each.number, part[0].size, each.etag, 0, part[0].checksum))
        algorithm = found.info.checksum or "CRC64NVME"
        checksum = Checksum(algorithm, "FULL_OBJECT", compute(algorithm, data))
        if found.info.checksum_type == "COMPOSITE":
            joined = b"".join(base64.b64decode(fact.checksum) for fact in facts)
            checksum = Checksum(algorithm, "COMPOSITE", f"{compute(algorithm, joined)}-{len(facts)}")
        if promised_checksum is not None and promised_checksum[1] not in (
            checksum.value,
            checksum.value.partition("-")[0],
        ):
            raise errors.BadChecksum(promised_checksum[0], promised_checksum[1], checksum.value)
        digest = hashlib.md5(b"".join(bytes.fromhex(fact.etag) for fact in facts)).hexdigest()
        thing = Thing(
            data,
            f"{digest}-{len(facts)}",
            dict(found.meta.headers),
            dict(found.meta.tags),
            checksum,
            self.clock(),
            facts,
        )
        self._check_write(self.buckets[bucket], key, conditions)
        stored = self._store(self.buckets[bucket], key, thing)
        found.done = (wanted, stored)
        return stored

    async def abort_upload(self, caller: Caller, bucket: str, key: bytes, upload: str) -> None:
        self._upload(caller, bucket, key, upload)
        del self.buckets[bucket].uploads[upload]

    async def object_parts(
        self, caller: Caller, bucket: str, key: bytes, version: str | None, after_number: int, limit: int
    ) -> list[PartFact]:
        parts = self._find(caller, bucket, key, version)[1].parts
        return [each for each in parts if each.number > after_number][:limit]

    # --- tags --------------------------------------------------------------------------------------------------------

    async def get_tags(self, caller: Caller, bucket: str, key: bytes, version: str | None) -> dict[str, str]:
        return self._find(caller, bucket, key, version)[1].tags

    async def set_tags(
        self, caller: Caller, bucket: str, key: bytes, version: str | None, tags: dict[str, str]
    ) -> None:
        self._find(caller, bucket, key, version)[1].tags = dict(tags)


async def _pieces(data: bytes) -> AsyncIterator[Buffer]:
    for at in range(0, len(data), 1 << 20):
        yield data[at : at + (1 << 20)]
