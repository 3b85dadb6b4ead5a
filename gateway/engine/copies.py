"""Copies of objects, and of ranges of objects into parts of uploads.

A copy shares the runs of its source and moves no bytes. Bytes are read only for a checksum that is not known yet, or
for the digests of a part that is a range. They are stored anew only for another policy (`rewrite_copy.py`)."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import NamedTuple

from gateway.blocks.digests import Digests
from gateway.engine.base import pack_checksums, preconditions
from gateway.engine.ranges import resolve_whole
from gateway.engine.rewrite_copy import RewriteCopyOperations
from gateway.engine.types import NO_CONDITIONS, ByteRange, Caller, Conditions, ObjectMeta, PartInfo, Stored
from gateway.engine.writes import CRC64, FULL
from gateway.errors import Busy, Invalid, SourceChanged
from gateway.journal.apply.bytes import slice_pieces
from gateway.journal.columns import Checksum, Piece, first_checksum, pack_map, unpack_checksums
from gateway.journal.tables import Shape
from gateway.namespace import keys
from gateway.namespace.commands.copy import Copied, CopyObject, CopyPart, MoveObject, Source
from gateway.namespace.conditions import ObjectState, check_source
from gateway.namespace.multipart_digests import can_combine, combine_checksums
from gateway.namespace.read.lookups import Content, Found

TRIES = 5
"""How often a copy is tried whose source changes between being read and being copied."""
SHARED_PIECES_MAX = 1_100
"""A part shares the bytes of its source if they consist of at most this many pieces, since one command counts them all.
Otherwise the bytes are stored anew. 5 GiB, the largest part, consist of at most 1,025 parts of 5 MiB, the smallest
part."""


class CopiedPart(NamedTuple):
    """A copied part, the algorithm of its checksum (empty for none), and the version id of the source."""

    part: PartInfo
    algorithm: str
    source_version: str | None


class CopyOperations(RewriteCopyOperations):
    async def copy(
        self,
        caller: Caller,
        source_bucket: str,
        source_key: bytes,
        source_version: str | None,
        source_conditions: Conditions,
        bucket: str,
        key: bytes,
        meta: ObjectMeta | None,
        tags: Mapping[str, str] | None,
        conditions: Conditions = NO_CONDITIONS,
        checksum_algorithm: str | None = None,
        most_read_bytes: int | None = None,
    ) -> tuple[Stored, str | None]:
        """Copy an object. *meta* and *tags*: None copies those of the source. *most_read_bytes*: the maximum size of a
        source whose bytes have to be read, for another checksum or another policy.

        Returns the stored copy and the version id of the source. Raises as a read of the source and a write of the
        target do, and `Invalid` for a source that is too large."""
        keys.check_new_key(key)
        row = self._bucket_summary(caller, bucket)
        acting = self._acting_in_both(caller, bucket, source_bucket)
        for _ in range(TRIES):
            found, file = self._source(caller, source_bucket, source_key, source_version, source_conditions)
            context = self._write_context(caller, row, key, file.size)
            if self._needs_rewrite(context, file):
                _check_size(file.size, most_read_bytes)
                packed_tags = file.tags if tags is None else pack_map(tags)
                stored = await self._store_rewritten(
                    caller, found, file, context, bucket, key, meta, packed_tags, conditions, checksum_algorithm
                )
                return stored, found.shown_version
            new_checksums = await self._checksums(found, file, checksum_algorithm, most_read_bytes)
            source = Source(
                source_bucket, source_key, source_version or "", preconditions(source_conditions),
                *((file.id, file.content) if new_checksums is not None else ()),
            )  # fmt: skip
            command = CopyObject(
                bucket, key, *acting, source,
                None if meta is None else pack_map(meta.headers),
                None if tags is None else pack_map(tags),
                new_checksums, preconditions(conditions),
            )  # fmt: skip
            try:
                copied = await self._send(command)
            except Busy:
                if new_checksums is None:
                    raise
                continue
            return _stored(copied), copied.source_version
        raise SourceChanged("The source of the copy changed again and again while it was read. Please try again.")

    async def move(self, caller: Caller, source_bucket: str, source_key: bytes, bucket: str, key: bytes) -> Stored:
        """Rename an object, within its bucket or to another one, atomically: any other write to either name takes
        effect before or after the move. Raises as `copy` does."""
        acting = self._acting_in_both(caller, bucket, source_bucket)
        command = MoveObject(bucket, key, *acting, source_bucket, source_key)
        return _stored(await self._send(command))

    def _acting_in_both(self, caller: Caller, bucket: str, source_bucket: str) -> tuple[int, bool]:
        """Return the user for whom a command on two buckets runs, and whether that is a root user, as
        `Caller.acting_in` does. For buckets of two owners, of which one is granted, the command checks no owner: both
        were checked here.

        Raises `NoSuchBucket`, `AccessDenied`."""
        owners = {self._bucket_summary(caller, name).owner for name in (bucket, source_bucket)}
        if caller.root or not caller.granted:
            return caller.user_id, caller.root
        return (owners.pop(), False) if len(owners) == 1 else (caller.user_id, True)

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
        source_conditions: Conditions = NO_CONDITIONS,
        most_bytes: int | None = None,
    ) -> CopiedPart:
        """Copy a range of an object, of at most *most_bytes*, to a part of an upload.

        Raises as a read of the source and `put_part` do; `InvalidArgument` for a range that exceeds the object,
        `Invalid` for one that is too large."""
        row = self._bucket_summary(caller, bucket)
        acting = self._acting_in_both(caller, bucket, source_bucket)
        algorithm = self._open_upload(bucket, key, upload).checksum
        for _ in range(TRIES):
            found, file = self._source(caller, source_bucket, source_key, source_version, source_conditions)
            start, length = resolve_whole(byte_range, file.size)
            _check_size(length, most_bytes)
            context = self._write_context(caller, row, key, None)
            pieces = self._pieces_in(file, start, length)
            if self._needs_rewrite(context, file) or len(pieces) > SHARED_PIECES_MAX:
                part = await self._store_rewritten_part(
                    caller, found, file, context, bucket, key, upload, number, start, length, algorithm
                )
                return CopiedPart(part, algorithm, found.shown_version)
            etag, crc64nvme, value = await self._digests(caller, found, file, start, length, algorithm)
            source = Source(
                source_bucket, source_key, source_version or "", preconditions(source_conditions), file.id, file.content
            )
            try:
                modified_ns, from_version = await self._send(
                    CopyPart(
                        bucket, key, *acting, upload, number, source, start, length, etag,
                        crc64nvme, value, pieces,
                    )
                )  # fmt: skip
            except Busy:
                continue
            return CopiedPart(PartInfo(number, length, etag, modified_ns, value), algorithm, from_version)
        raise SourceChanged("The source of the copy changed again and again while it was read. Please try again.")

    def _pieces_in(self, file: Content, start: int, length: int) -> tuple[Piece, ...]:
        """Return the pieces of the file's body that make up a range. Empty if the file is a run, or if the range is
        empty or the whole file: then the part has the content of the file."""
        if file.shape != Shape.BODY or length in (0, file.size):
            return ()
        return tuple(slice_pieces(map(Piece._make, self._lookup.pieces_of(file.content)), start, length))

    def _source(
        self, caller: Caller, bucket: str, key: bytes, version: str | None, conditions: Conditions
    ) -> tuple[Found, Content]:
        found, file = self._find(caller, bucket, key, version, NO_CONDITIONS)
        wanted = preconditions(conditions)
        if wanted is not None:
            check_source(wanted, ObjectState(file.etag, file.size, found.modified_ns))
        return found, file

    async def _checksums(
        self, found: Found, file: Content, algorithm: str | None, most_read_bytes: int | None
    ) -> bytes | None:
        """Return the packed checksums of the copy; None if it has those of the source.

        A copy is one object and not a sequence of parts, so S3 shows a checksum of all its bytes. A composite checksum
        stays if the request names no algorithm and the full one is not known, since the bytes would have to be read."""
        known = unpack_checksums(file.checksums)
        shown = known[0] if known else None
        wanted = algorithm or (shown.algorithm if shown else None)
        if wanted is None or (shown and (shown.algorithm, shown.type) == (wanted, FULL)):
            return None
        for each in known:
            if each.algorithm == wanted and each.type == FULL:
                return pack_checksums([each, *(other for other in known if other is not each)])
        if shown and shown.algorithm == wanted and can_combine(wanted):
            parts = [(part.checksum, part.size) for part in self._parts(file)]
            return pack_checksums([combine_checksums(wanted, parts), *known[1:]])
        if algorithm is None:
            return None
        _check_size(file.size, most_read_bytes)
        digests = await self._read_all(found, file, 0, file.size, algorithm)
        made = [Checksum(algorithm, FULL, digests.value(algorithm))]
        if algorithm != CRC64:
            made.append(Checksum(CRC64, FULL, digests.value(CRC64)))
        return pack_checksums(made)

    async def _digests(
        self, caller: Caller, found: Found, file: Content, start: int, length: int, algorithm: str
    ) -> tuple[str, int, str]:
        """Return (MD5 in hex, CRC64NVME, the upload's checksum) of a range. Reads the range if they are not known."""
        known = self._known(file, start, length, algorithm)
        if known is not None:
            return known
        digests = await self._read_all(found, file, start, length, algorithm or None)
        return digests.md5.hex(), digests.crc64nvme, digests.value(algorithm) if algorithm else ""

    def _known(self, file: Content, start: int, length: int, algorithm: str) -> tuple[str, int, str] | None:
        """Return the digests of a range that is a whole object of one run, or exactly one part of an object; else
        None."""
        if file.shape == Shape.RUN and start == 0 and length == file.size and "-" not in file.etag:
            values = {each.algorithm: each.value for each in unpack_checksums(file.checksums) if each.type == FULL}
            if CRC64 in values and (not algorithm or algorithm in values):
                crc64nvme = int.from_bytes(base64.b64decode(values[CRC64]), "big")
                return file.etag, crc64nvme, values.get(algorithm, "")
        at = 0
        for part in self._parts(file):
            if at == start and part.size == length and not algorithm and part.crc64nvme:
                return part.etag, part.crc64nvme, ""
            at += part.size
        return None

    async def _read_all(self, found: Found, file: Content, start: int, length: int, algorithm: str | None) -> Digests:
        digests = Digests(algorithm)
        with self._journal.reading():
            async for piece in self._reader.read(self._ranges(found, file, start, length)):
                await digests.update(piece)
        await digests.finish()
        return digests


def _check_size(size: int, most_bytes: int | None) -> None:
    """Raise `Invalid`, with S3's message, if *size* exceeds what one request may copy."""
    if most_bytes is not None and size > most_bytes:
        raise Invalid(
            f"The specified copy source is larger than the maximum allowable size for a copy source: {most_bytes}"
        )


def _stored(copied: Copied) -> Stored:
    return Stored(copied.etag, copied.version, copied.size, copied.modified_ns, first_checksum(copied.checksums))
