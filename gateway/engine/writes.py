"""Writing objects and parts. *Bytes first, journal second, answer last*: `Writer.storing` settles by how the command
went that is sent inside it."""

from __future__ import annotations

import base64

from gateway.blocks.digests import Digests
from gateway.blocks.write.writer import StoredRun
from gateway.engine.base import Counter, pack_checksums, preconditions
from gateway.engine.types import (
    NO_CONDITIONS,
    Body,
    Caller,
    Conditions,
    Meta,
    PartInfo,
    Promised,
    Stored,
)
from gateway.errors import BadChecksum, BadDigest, IncompleteBody, Invalid, NoSuchUpload
from gateway.journal.columns import Checksum, pack_map
from gateway.journal.tables import Upload, UploadState
from gateway.namespace import keys
from gateway.namespace.commands.objects import PutObject
from gateway.namespace.commands.uploads import PutPart
from gateway.namespace.read import lookups
from gateway.namespace.version_ids import parse_upload

CRC64 = "CRC64NVME"
FULL = "FULL_OBJECT"


class Writes(Counter):
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
        """Store an object. What this answered is durable.

        Raises `NoSuchBucket`, `AccessDenied`, `InvalidKey`, `PreconditionFailed`, `IncompleteBody`, `BadDigest`,
        `BadChecksum`, and whatever the body raises."""
        keys.check(key)
        row = self._owned(caller, bucket)
        algorithm = checksum_algorithm or (promised.checksum[0] if promised.checksum else None)
        digests = Digests(algorithm, sha256=promised.sha256 is not None)
        stamp = self._stamp(caller, row, key, promised.size)
        async with self._writer.storing(stamp, aiter(body), promised.size, digests) as stored:
            await digests.finish()
            _keep_promises(promised, body, digests, stored)
            shown = Checksum(algorithm or CRC64, FULL, digests.value(algorithm or CRC64))
            checksums = [shown] if shown.algorithm == CRC64 else [shown, Checksum(CRC64, FULL, digests.value(CRC64))]
            etag = digests.md5.hex()
            version, modified_ns = await self._send(
                PutObject(
                    bucket, key, caller.user_id, caller.root, stored.size, etag, stored.extents, stored.blocks,
                    stamp.targets.policy, pack_map(meta.headers), pack_checksums(checksums), pack_map(meta.tags),
                    preconditions(conditions),
                )
            )  # fmt: skip
        return Stored(etag, version, stored.size, modified_ns, shown)

    async def put_part(
        self, caller: Caller, bucket: str, key: bytes, upload: str, number: int, body: Body, promised: Promised,
        checksum_algorithm: str | None = None,
    ) -> PartInfo:  # fmt: skip
        """Store a part of an upload. *checksum_algorithm*: that of the checksum which comes behind the bytes.

        Raises as `put`, and `NoSuchUpload`; `Invalid` for a checksum that is not of the upload's own kind."""
        row = self._owned(caller, bucket)
        found = self._open_upload(bucket, key, upload)
        algorithm = found.checksum or None
        told = promised.checksum[0] if promised.checksum else checksum_algorithm
        _check_algorithm(found, told)
        digests = Digests(algorithm or told, sha256=promised.sha256 is not None)
        stamp = self._stamp(caller, row, key, None)
        async with self._writer.storing(stamp, aiter(body), promised.size, digests) as stored:
            await digests.finish()
            _keep_promises(promised, body, digests, stored)
            checksum = digests.value(algorithm) if algorithm else ""
            etag = digests.md5.hex()
            modified_ns = await self._send(
                PutPart(
                    bucket, key, caller.user_id, caller.root, upload, number, stored.size, etag, stored.extents,
                    stored.blocks, stamp.targets.policy, digests.crc64nvme, checksum,
                )
            )  # fmt: skip
        return PartInfo(number, stored.size, etag, modified_ns, checksum)

    def _open_upload(self, bucket: str, key: bytes, upload: str) -> Upload:
        """Raises `NoSuchUpload`."""
        found = lookups.upload(self._store, bucket, key, parse_upload(upload))
        if found is None or found.state != UploadState.OPEN:
            raise NoSuchUpload(upload)
        return found


def _check_algorithm(upload: Upload, told: str | None) -> None:
    """Where the upload asked for checksums its parts bring those, and must bring one if the whole's is made of them.

    Raises `Invalid`, in S3's own words."""
    if not upload.checksum or told == upload.checksum or (told is None and upload.checksum_type == FULL):
        return
    raise Invalid(
        f"Checksum Type mismatch occurred, expected checksum Type: {upload.checksum.lower()}, actual checksum Type: "
        f"{told.lower() if told else 'null'}"
    )


def _keep_promises(promised: Promised, body: Body, digests: Digests, stored: StoredRun) -> None:
    """What the client said of its bytes must be so, before anything is committed."""
    if promised.size is not None and promised.size != stored.size:
        raise IncompleteBody(promised.size, stored.size)
    if promised.md5 is not None and promised.md5 != digests.md5:
        raise BadDigest(base64.b64encode(promised.md5).decode(), base64.b64encode(digests.md5).decode())
    if promised.sha256 is not None and promised.sha256 != digests.sha256:
        raise BadDigest(promised.sha256, digests.sha256)
    for told in (promised.checksum, body.trailing_checksum()):
        if told is not None and told[1] != (computed := _value(digests, told[0])):
            raise BadChecksum(told[0], told[1], computed)


def _value(digests: Digests, algorithm: str) -> str:
    try:
        return digests.value(algorithm)
    except KeyError:
        raise Invalid(f"one checksum algorithm was named first, and another one, {algorithm}, came") from None
