"""Complete a multipart upload by S3's rules: its parts become one body. Works on rows in memory only.

No bytes are copied. The reference count that a part holds on its run passes to the body's piece. A repeated completion
gets the same answer, which the upload's row keeps.

A completion of few parts is one command, `CompleteUpload`, which reads the row of each part. `complete_prepared.py` is
for uploads of many parts, and of parts that were copied from several runs.
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
"""The least size of every part except the last."""
MOST_OBJECT_BYTES = 5 * 1024**4
MOST_PIECES = 100_000
"""The most pieces of a body. An object of the maximum size that was copied part by part has a tenth of that."""


class WantedPart(NamedTuple):
    """A part as the client names it. If *checksum* (base64) is given, it is compared."""

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


@command(122, weight=lambda command: weigh_key(command) + len(command.parts))
class CompleteUpload(Command[CompletedObject | None]):
    """Make the named parts, which are in ascending order, the current version of *key*.

    Answers None if a part is a body of its own, whose runs have to be counted: then nothing is changed, and the
    caller completes the upload as `complete_prepared.py` says.
    Raises `NoSuchBucket`, `AccessDenied`, `NoSuchUpload`, `Invalid`, `InvalidArgument`, `InvalidPart`,
    `InvalidPartOrder`, `EntityTooSmall`, `EntityTooLarge`, `BadChecksum`, `PreconditionFailed`, `NoSuchKey`."""

    bucket: str
    key: bytes
    user: int
    root: bool
    upload: str
    parts: tuple[WantedPart, ...]
    expected_algorithm: str = ""
    """The algorithm of the object's checksum, if the client sends one. *expected_value* may lack the part count."""
    expected_value: str = ""
    expected_type: str = ""
    expected_size: int | None = None
    conditions: Preconditions | None = None


class CompletionCommand(Protocol):
    """A command that completes an upload."""

    @property
    def bucket(self) -> str: ...
    @property
    def key(self) -> bytes: ...
    @property
    def upload(self) -> str: ...


def complete_upload(command: CompleteUpload, tx: Tx) -> CompletedObject | None:
    check_order(command.parts)
    upload = any_upload(tx, command.bucket, command.key, command.upload, command.user, command.root)
    if upload.state != UploadState.OPEN:
        return repeat_result(command, part_list_digest(command.parts), upload, tx)
    location = locate_key(tx, command.bucket, command.key, command.user, command.root)
    if location.entry is not None:
        prefetch_neighbours(tx, location.entry)
    # The parts are prefetched last, so that thousands of look-ups are not repeated. If the client names more parts than
    # the upload has, one of the first `upload.parts + 1` is missing.
    tx.prefetch([(PART, (upload.id, part.number)) for part in command.parts[: upload.parts + 1]])
    parts = check_parts(command, upload, lambda number: tx.get(PART, (upload.id, number)))
    if any(part.shape == Shape.BODY for part in parts):
        return None
    if command.conditions is not None:
        check_write(command.conditions, command.key, object_state(tx, location.entry))
    checksums = multipart_checksums(parts, upload.checksum, upload.checksum_type)
    check_expected(command, upload, checksums[0], sum(part.size for part in parts))
    return _join_parts(command, upload, location, parts, checksums, tx)


def check_order(parts: tuple[WantedPart, ...]) -> None:
    if not parts:
        raise InvalidArgument("a completion must name at least one part")
    last = 0
    for part in parts:
        if part.number <= last:
            raise InvalidPartOrder
        last = part.number
    if last > PARTS:
        raise InvalidPart(f"there is no part {last}")


def check_parts(command: CompleteUpload, upload: Upload, part_of: Callable[[int], Part | None]) -> list[Part]:
    """Return the rows of the parts that the client names. Raises `InvalidPart`, `EntityTooSmall`, `EntityTooLarge`."""
    found: list[Part] = []
    for wanted in command.parts:
        part = part_of(wanted.number)
        if part is None or part.etag != wanted.etag.strip('"').lower():
            raise _invalid(command, wanted, f"part {wanted.number} was not uploaded, or has another ETag")
        _check_checksum(command, upload, wanted, part)
        found.append(part)
    for part in found[:-1]:
        if part.size < LEAST_PART_BYTES:
            raise EntityTooSmall(part.number, part.size)
    size = sum(part.size for part in found)
    if size > MOST_OBJECT_BYTES:
        raise EntityTooLarge(size, MOST_OBJECT_BYTES)
    return found


def _check_checksum(command: CompleteUpload, upload: Upload, wanted: WantedPart, part: Part) -> None:
    """Compare the part's checksum with the client's. S3 requires the client to send those of all parts if the object's
    checksum is composite, since that is made of them.

    A checksum of a part whose upload has no algorithm was verified when the part arrived, and is not stored."""
    if not upload.checksum:
        return
    if wanted.checksum and wanted.algorithm not in ("", upload.checksum):
        raise _invalid(command, wanted, f"part {wanted.number} carries {upload.checksum}, not {wanted.algorithm}")
    if wanted.checksum and wanted.checksum != part.checksum:
        raise _invalid(command, wanted, f"part {wanted.number} has another {upload.checksum}")
    if not wanted.checksum and upload.checksum_type == COMPOSITE:
        raise Invalid(
            f"The upload was created using a {upload.checksum.lower()} checksum. The complete request must include the "
            f"checksum for each part. It was missing for part {wanted.number} in the request."
        )


def _invalid(command: CompleteUpload, wanted: WantedPart, why: str) -> InvalidPart:
    return InvalidPart(why, command.upload, wanted.number, wanted.etag)


def check_expected(command: CompleteUpload, upload: Upload, computed: Checksum, size: int) -> None:
    if command.expected_size is not None and command.expected_size != size:
        raise Invalid(
            f"The provided 'x-amz-mp-object-size' header value {command.expected_size} does not match what was "
            f"computed: {size}"
        )
    if command.expected_type and command.expected_type != upload.checksum_type:
        raise Invalid(
            f"The upload was created using the {upload.checksum_type or 'null'} checksum mode. The complete request "
            "must use the same checksum mode."
        )
    if not command.expected_value:
        return
    if command.expected_algorithm != computed.algorithm:
        raise InvalidArgument(f"the upload carries {computed.algorithm}, not {command.expected_algorithm}")
    if command.expected_value not in (computed.value, computed.value.partition("-")[0]):
        raise BadChecksum(computed.algorithm, command.expected_value, computed.value)


def _join_parts(
    command: CompleteUpload, upload: Upload, location: KeyLocation, parts: list[Part], checksums: list[Checksum], tx: Tx
) -> CompletedObject:
    body = tx.new_id()
    numbers = tuple(part.number for part in parts)
    tx.emit(PartsJoined(command.bucket, command.key, upload.id, body, numbers, tuple(map(summarize_part, parts))))
    size = sum(part.size for part in parts)
    return finish_upload(
        command, upload, location, body, size, multipart_etag(parts), pack_list(checksums),
        part_list_digest(command.parts), tx,
    )  # fmt: skip


def summarize_part(part: Part) -> PartSummary:
    return PartSummary(part.number, part.size, part.etag, int.from_bytes(part.crc64nvme, "big"), part.checksum)


def finish_upload(
    command: CompletionCommand, upload: Upload, location: KeyLocation, body: int, size: int, etag: str,
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
    tx.emit(UploadEnded(command.bucket, command.key, upload.id, done, pack(result), *times))
    return CompletedObject(version, modified_ns, etag, size, pack_list([shown_first] if shown_first else []))


def repeat_result(command: CompletionCommand, digest: bytes, upload: Upload, tx: Tx) -> CompletedObject:
    """Return the answer of the earlier completion that *command* repeats. Raises `NoSuchUpload` if there is none."""
    if upload.state != UploadState.COMPLETED:
        raise NoSuchUpload(command.upload)
    done = Completed._make(unpack(upload.result))
    if done.digest != digest:
        raise NoSuchUpload(command.upload)
    version = s3_version_id(done.version, int(done.null), require(tx.rows, BUCKET, (command.bucket,)).versioning)
    checksums = pack_list([done.checksum] if done.checksum else [])
    return CompletedObject(version, upload.ended_ns, done.etag, done.size, checksums)


def part_list_digest(parts: tuple[WantedPart, ...]) -> bytes:
    """Return a digest of the part list that a client sends. A repeated completion must send the same list."""
    named = pack([(part.number, part.etag.strip('"').lower()) for part in parts])
    return hashlib.blake2b(named, digest_size=16).digest()


HANDLERS: dict[type[Any], Any] = {CompleteUpload: complete_upload}
