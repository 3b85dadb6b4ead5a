"""Writing objects and parts: bytes first, journal second, answer last.

`Writer.storing` stores the bytes. The command that names them is sent inside its context, and its outcome decides
whether the blocks are marked as named or released."""

from __future__ import annotations

import base64

from gateway.blocks.digests import Digests
from gateway.blocks.write.writer import StoredRun
from gateway.engine.base import EngineBase, pack_checksums, preconditions
from gateway.engine.types import (
    NO_CONDITIONS,
    Body,
    Caller,
    Conditions,
    ExpectedDigests,
    ObjectMeta,
    PartInfo,
    Stored,
)
from gateway.errors import BadChecksum, BadDigest, IncompleteBody, Invalid, NoSuchUpload
from gateway.journal.columns import Checksum, pack_map
from gateway.journal.tables import Upload, UploadState
from gateway.namespace import keys
from gateway.namespace.commands.objects import PutObject
from gateway.namespace.commands.uploads import PutPart
from gateway.namespace.read import lookups
from gateway.namespace.version_ids import parse_upload_id

CRC64 = "CRC64NVME"
FULL = "FULL_OBJECT"


class WriteOperations(EngineBase):
    """Operations that store bytes."""

    async def put(
        self,
        caller: Caller,
        bucket: str,
        key: bytes,
        body: Body,
        expected: ExpectedDigests,
        meta: ObjectMeta,
        conditions: Conditions = NO_CONDITIONS,
        checksum_algorithm: str | None = None,
    ) -> Stored:
        """Store an object. Once this returns, the object is durable.

        Raises `NoSuchBucket`, `AccessDenied`, `InvalidKey`, `PreconditionFailed`, `IncompleteBody`, `BadDigest`,
        `BadChecksum`, and whatever the body raises."""
        keys.check_new_key(key)
        row = self._bucket_summary(caller, bucket)
        algorithm = checksum_algorithm or (expected.checksum[0] if expected.checksum else None)
        digests = Digests(algorithm, sha256=expected.sha256 is not None)
        context = self._write_context(caller, row, key, expected.size)
        async with self._writer.storing(context, aiter(body), expected.size, digests) as stored:
            await digests.finish()
            _verify_digests(expected, body, digests, stored)
            shown = Checksum(algorithm or CRC64, FULL, digests.value(algorithm or CRC64))
            checksums = [shown] if shown.algorithm == CRC64 else [shown, Checksum(CRC64, FULL, digests.value(CRC64))]
            etag = digests.md5.hex()
            version, modified_ns = await self._send(
                PutObject(
                    bucket, key, *caller.acting_in(bucket), stored.size, etag, stored.extents,
                        stored.blocks,
                    context.targets.policy, pack_map(meta.headers), pack_checksums(checksums), pack_map(meta.tags),
                    preconditions(conditions),
                )
            )  # fmt: skip
        return Stored(etag, version, stored.size, modified_ns, shown)

    async def put_part(
        self, caller: Caller, bucket: str, key: bytes, upload: str, number: int, body: Body, expected: ExpectedDigests,
        checksum_algorithm: str | None = None,
    ) -> PartInfo:  # fmt: skip
        """Store a part of an upload. *checksum_algorithm*: the algorithm of a checksum in the trailer.

        Raises as `put` does, and `NoSuchUpload`; `Invalid` for a checksum of another algorithm than the upload's."""
        row = self._bucket_summary(caller, bucket)
        found = self._open_upload(bucket, key, upload)
        algorithm = found.checksum or None
        declared = expected.checksum[0] if expected.checksum else checksum_algorithm
        _check_algorithm(found, declared)
        digests = Digests(algorithm or declared, sha256=expected.sha256 is not None)
        context = self._write_context(caller, row, key, None)
        async with self._writer.storing(context, aiter(body), expected.size, digests) as stored:
            await digests.finish()
            _verify_digests(expected, body, digests, stored)
            checksum = digests.value(algorithm) if algorithm else ""
            etag = digests.md5.hex()
            modified_ns = await self._send(
                PutPart(
                    bucket, key, *caller.acting_in(bucket), upload, number, stored.size, etag,
                    stored.extents, stored.blocks, context.targets.policy, digests.crc64nvme, checksum,
                )
            )  # fmt: skip
        return PartInfo(number, stored.size, etag, modified_ns, checksum)

    def _open_upload(self, bucket: str, key: bytes, upload: str) -> Upload:
        """Return the upload. Raises `NoSuchUpload`."""
        found = lookups.upload(self._store, bucket, key, parse_upload_id(upload))
        if found is None or found.state != UploadState.OPEN:
            raise NoSuchUpload(upload)
        return found


def _check_algorithm(upload: Upload, declared: str | None) -> None:
    """Check that a part of an upload with checksums has one of the same algorithm. A part may have none, unless the
    checksum of the object is combined from those of its parts.

    Raises `Invalid`, with S3's message."""
    if not upload.checksum or declared == upload.checksum or (declared is None and upload.checksum_type == FULL):
        return
    raise Invalid(
        f"Checksum Type mismatch occurred, expected checksum Type: {upload.checksum.lower()}, actual checksum Type: "
        f"{declared.lower() if declared else 'null'}"
    )


def _verify_digests(expected: ExpectedDigests, body: Body, digests: Digests, stored: StoredRun) -> None:
    """Compare size and digests with those that the client declared.

    Raises `IncompleteBody`, `BadDigest`, `BadChecksum`."""
    if expected.size is not None and expected.size != stored.size:
        raise IncompleteBody(expected.size, stored.size)
    if expected.md5 is not None and expected.md5 != digests.md5:
        raise BadDigest(base64.b64encode(expected.md5).decode(), base64.b64encode(digests.md5).decode())
    if expected.sha256 is not None and expected.sha256 != digests.sha256:
        raise BadDigest(expected.sha256, digests.sha256)
    for declared in (expected.checksum, body.trailing_checksum()):
        if declared is not None and declared[1] != (computed := _value(digests, declared[0])):
            raise BadChecksum(declared[0], declared[1], computed)


def _value(digests: Digests, algorithm: str) -> str:
    try:
        return digests.value(algorithm)
    except KeyError:
        raise Invalid(f"the trailer has a checksum of {algorithm}, which the request did not announce") from None
