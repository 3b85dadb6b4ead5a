"""Complete a multipart upload by S3's rules: its parts become one body. Works on rows in memory only.

No bytes are copied. The reference count that a part holds on its run passes to the body's piece. A repeated completion
gets the same answer, which the upload's row keeps.

A completion of few parts is one command, `CompleteUpload`, which reads the row of each part. `complete_prepared` is for
uploads of many parts, and of parts that were copied from several runs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from gateway.errors import (
    BadChecksum,
    EntityTooLarge,
    EntityTooSmall,
    Invalid,
    InvalidArgument,
    InvalidPart,
    InvalidPartOrder,
    NoSuchUpload,
)
from gateway.journal.columns import Checksum, Completed, PartSummary, first_checksum, pack, pack_list, unpack
from gateway.journal.commands import Command, Tx, command
from gateway.journal.records.uploads import PartsJoined, UploadEnded
from gateway.journal.rows import require
from gateway.journal.tables import BUCKET, PART, Part, Shape, Upload, UploadState
from gateway.namespace.commands.objects import name_object
from gateway.namespace.commands.uploads import PARTS, any_upload
from gateway.namespace.conditions import Preconditions, check_write
from gateway.namespace.multipart_digests import COMPOSITE, multipart_checksums, multipart_etag
from gateway.namespace.paths import KeyLocation, locate_key, object_state, prefetch_neighbours, weigh_key
from gateway.namespace.version_ids import parse_version_id, s3_version_id

LEAST_PART_BYTES = 5 * 1024**2
"""Of every part but the last."""
MOST_OBJECT_BYTES = 5 * 1024**4
MOST_PIECES = 100_000
"""Of a body. A copy of the largest object part by part has a tenth of that."""


class WantedPart(NamedTuple):
    """A part as the client names it; *checksum* (base64) is compared if given."""

    number: int
    etag: str
    checksum: str = ""
    algorithm: str = ""


class CompletedObject(NamedTuple):
    """The answer of a command that completes an upload."""

    version: str | None
    """As S3 shows it; None in a bucket without versioning."""
    modified_ns: int
    etag: str
    size: int
    checksums: bytes
    """packed: list of `Checksum`."""


@command(122, weight=lambda asked: weigh_key(asked) + len(asked.parts))
class CompleteUpload(Command[CompletedObject | None]):
    """The named parts, in ascending order, become the current version of *key*.

    Answers None if a part is a body of its own, whose runs have to be counted: then nothing is changed, and the
    caller completes the upload as `complete_prepared` says.
    Raises `NoSuchBucket`, `AccessDenied`, `NoSuchUpload`, `Invalid`, `InvalidArgument`, `InvalidPart`,
    `InvalidPartOrder`, `EntityTooSmall`, `EntityTooLarge`, `BadChecksum`, `PreconditionFailed`, `NoSuchKey`."""

    bucket: str
    key: bytes
    user: int
    root: bool
    upload: str
    parts: tuple[WantedPart, ...]
    expected_algorithm: str = ""
    """Of the whole object's checksum, if the client says it; its *value* may come without the part count."""
    expected_value: str = ""
    expected_type: str = ""
    expected_size: int | None = None
    conditions: Preconditions | None = None


class CompletionCommand(Protocol):
    """What every command that completes an upload names."""

    @property
    def bucket(self) -> str: ...
    @property
    def key(self) -> bytes: ...
    @property
    def upload(self) -> str: ...


def complete_upload(asked: CompleteUpload, tx: Tx) -> CompletedObject | None:
    check_order(asked.parts)
    upload = any_upload(tx, asked.bucket, asked.key, asked.upload, asked.user, asked.root)
    if upload.state != UploadState.OPEN:
        return repeat_result(asked, part_list_digest(asked.parts), upload, tx)
    location = locate_key(tx, asked.bucket, asked.key, asked.user, asked.root)
    if location.entry is not None:
        prefetch_neighbours(tx, location.entry)
    # The parts come last, so that looking at thousands of them is not repeated. Where more are named than there are,
    # one of the first `upload.parts + 1` is missing.
    tx.prefetch([(PART, (upload.id, part.number)) for part in asked.parts[: upload.parts + 1]])
    parts = check_parts(asked, upload, lambda number: tx.get(PART, (upload.id, number)))
    if any(part.shape == Shape.BODY for part in parts):
        return None
    if asked.conditions is not None:
        check_write(asked.conditions, asked.key, object_state(tx, location.entry))
    checksums = multipart_checksums(parts, upload.checksum, upload.checksum_type)
    check_expected(asked, upload, checksums[0], sum(part.size for part in parts))
    return _join_parts(asked, upload, location, parts, checksums, tx)


def check_order(parts: tuple[WantedPart, ...]) -> None:
    if not parts:
        raise InvalidArgument("a completion names at least one part")
    last = 0
    for part in parts:
        if part.number <= last:
            raise InvalidPartOrder
        last = part.number
    if last > PARTS:
        raise InvalidPart(f"there is no part {last}")


def check_parts(asked: CompleteUpload, upload: Upload, part_of: Callable[[int], Part | None]) -> list[Part]:
    """The parts' rows, if they are as the client has them and of a size that S3 allows."""
    found: list[Part] = []
    for wanted in asked.parts:
        part = part_of(wanted.number)
        if part is None or part.etag != wanted.etag.strip('"').lower():
            raise _invalid(asked, wanted, f"part {wanted.number} was not uploaded, or has another ETag")
        _check_checksum(asked, upload, wanted, part)
        found.append(part)
    for part in found[:-1]:
        if part.size < LEAST_PART_BYTES:
            raise EntityTooSmall(part.number, part.size)
    size = sum(part.size for part in found)
    if size > MOST_OBJECT_BYTES:
        raise EntityTooLarge(size, MOST_OBJECT_BYTES)
    return found


def _check_checksum(asked: CompleteUpload, upload: Upload, wanted: WantedPart, part: Part) -> None:
    """A composite checksum vouches for the whole only if the client knows those that it is made of: S3 wants them told.

    What is told of a part whose upload asked for none was checked when the part came, and is not kept."""
    if not upload.checksum:
        return
    if wanted.checksum and wanted.algorithm not in ("", upload.checksum):
        raise _invalid(asked, wanted, f"part {wanted.number} carries {upload.checksum}, not {wanted.algorithm}")
    if wanted.checksum and wanted.checksum != part.checksum:
        raise _invalid(asked, wanted, f"part {wanted.number} has another {upload.checksum}")
    if not wanted.checksum and upload.checksum_type == COMPOSITE:
        raise Invalid(
            f"The upload was created using a {upload.checksum.lower()} checksum. The complete request must include the "
            f"checksum for each part. It was missing for part {wanted.number} in the request."
        )


def _invalid(asked: CompleteUpload, wanted: WantedPart, why: str) -> InvalidPart:
    return InvalidPart(why, asked.upload, wanted.number, wanted.etag)


def check_expected(asked: CompleteUpload, upload: Upload, computed: Checksum, size: int) -> None:
    if asked.expected_size is not None and asked.expected_size != size:
        raise Invalid(
            f"The provided 'x-amz-mp-object-size' header value {asked.expected_size} does not match what was computed: "
            f"{size}"
        )
    if asked.expected_type and asked.expected_type != upload.checksum_type:
        raise Invalid(
            f"The upload was created using the {upload.checksum_type or 'null'} checksum mode. The complete request "
            "must use the same checksum mode."
        )
    if not asked.expected_value:
        return
    if asked.expected_algorithm != computed.algorithm:
        raise InvalidArgument(f"the upload carries {computed.algorithm}, not {asked.expected_algorithm}")
    if asked.expected_value not in (computed.value, computed.value.partition("-")[0]):
        raise BadChecksum(computed.algorithm, asked.expected_value, computed.value)


def _join_parts(
    asked: CompleteUpload, upload: Upload, location: KeyLocation, parts: list[Part], checksums: list[Checksum], tx: Tx
) -> CompletedObject:
    body = tx.new_id()
    numbers = tuple(part.number for part in parts)
    tx.emit(PartsJoined(asked.bucket, asked.key, upload.id, body, numbers, tuple(map(summarize_part, parts))))
    size = sum(part.size for part in parts)
    return finish_upload(
        asked, upload, location, body, size, multipart_etag(parts), pack_list(checksums),
        part_list_digest(asked.parts), tx,
    )  # fmt: skip


def summarize_part(part: Part) -> PartSummary:
    return PartSummary(part.number, part.size, part.etag, int.from_bytes(part.crc64nvme, "big"), part.checksum)


def finish_upload(
    asked: CompletionCommand, upload: Upload, location: KeyLocation, body: int, size: int, etag: str,
    checksums: bytes, digest: bytes, tx: Tx,
) -> CompletedObject:  # fmt: skip
    """Name the object, and end the upload."""
    version, modified_ns = name_object(
        tx, location, size=size, shape=Shape.BODY, content=body, etag=etag, owner=upload.owner,
        headers=upload.headers, checksums=checksums, tags=upload.tags,
    )  # fmt: skip
    number = None if version is None else parse_version_id(version)
    shown_first = first_checksum(checksums)
    result = Completed(etag, number or 0, number is None, shown_first, digest, size)
    done, times = int(UploadState.COMPLETED), (tx.at_ns, tx.site_ns)
    tx.emit(UploadEnded(asked.bucket, asked.key, upload.id, done, pack(result), *times))
    return CompletedObject(version, modified_ns, etag, size, pack_list([shown_first] if shown_first else []))


def repeat_result(asked: CompletionCommand, digest: bytes, upload: Upload, tx: Tx) -> CompletedObject:
    """The answer of the completion that this one repeats. Raises `NoSuchUpload` if it repeats none."""
    if upload.state != UploadState.COMPLETED:
        raise NoSuchUpload(asked.upload)
    done = Completed._make(unpack(upload.result))
    if done.digest != digest:
        raise NoSuchUpload(asked.upload)
    version = s3_version_id(done.version, int(done.null), require(tx.rows, BUCKET, (asked.bucket,)).versioning)
    checksums = pack_list([done.checksum] if done.checksum else [])
    return CompletedObject(version, upload.ended_ns, done.etag, done.size, checksums)


def part_list_digest(parts: tuple[WantedPart, ...]) -> bytes:
    """Of the part list that a client names: a repeat must name the same."""
    named = pack([(part.number, part.etag.strip('"').lower()) for part in parts])
    return hashlib.blake2b(named, digest_size=16).digest()


HANDLERS: dict[type[Any], Any] = {CompleteUpload: complete_upload}
