"""Completing a multipart upload of many parts without delaying the committer's other commands.

A command that read the rows of thousands of parts would occupy the committer for as long as reading them takes. So the
calling process reads the parts itself, in slices, and computes from them the body's packed columns, ETag and checksums
(`prepare_completion.py`). It then sends one command, `CompletePrepared`, which makes the object from these values and
reads no part. The command does nothing if a part was added after the process read them; it compares the upload's
`last_part` to find out. The rows of the parts are deleted afterwards, in slices, like those of an aborted upload.

The new body holds a count on the run of each of its pieces. A part that is a run passes its own count on. A part that
was copied from several runs, or from a range of one, is a body of its own, which may be shared, so the runs of its
pieces have to be counted anew: thousands of rows. That happens before, in slices: each `StagePieces` makes a *staged
body* of some of these pieces, which counts their runs, and which the upload holds. `CompletePrepared` takes over what
the staged bodies hold.

**The crash argument.** The prepared values are in memory alone. After a kill before `CompletePrepared` is durable, the
upload is still open and complete. The command makes the object and ends the upload in one batch. From then on the rows
of the parts named in `Upload.joined` own no content. After a kill before the parts' rows are deleted, the upload's row
in `freed` says that they are still to be deleted. A staged body counts its runs while these live (a run that is gone is
not counted but refused), so counts are right after each slice. What a completion has staged stays with the upload
until a completion takes it over, one that needs other pieces replaces it, or the upload's last part is deleted: then
`freed` has the staged bodies. A repeated completion that needs the same pieces goes on where the first one stopped.
"""

from __future__ import annotations

from typing import Any

from gateway.journal.columns import Piece, unpack_staged
from gateway.journal.commands import Command, Tx, command
from gateway.journal.records.bytes import BodyMade
from gateway.journal.records.uploads import PartsTakenOver, PiecesStaged
from gateway.journal.tables import RUN, Shape, UploadState
from gateway.namespace.commands.complete import CompletedObject, finish_upload, repeat_result
from gateway.namespace.commands.uploads import any_upload
from gateway.namespace.conditions import Preconditions, check_write
from gateway.namespace.paths import locate_key, object_state, prefetch_neighbours, weigh_key

WEIGHT_BYTES = 1 << 10
"""This many bytes of a command take the committer about as long as one row."""
PREPARED_FEATURE = 9
"""The journal's feature level that `CompletePrepared` needs: parts' rows are deleted after the completion."""
STAGED_FEATURE = 10
"""The level that `StagePieces` needs."""


@command(128, weight=lambda command: len(command.pieces))
class StagePieces(Command[int | None]):
    """Count the runs of the *nth* slice of the pieces that a completion needs counted. Emits `BodyMade` and
    `PiecesStaged`.

    Answers how many slices the upload has staged under *digest*, which is more than *nth*. Answers None if the upload
    has changed: it was completed, a part was added, or slices before this one are missing. Repeating a slice is
    harmless. Raises `NoSuchBucket`, `AccessDenied`, `NoSuchUpload`."""

    bucket: str
    key: bytes
    user: int
    root: bool
    upload: str
    last_part: int
    """As in `CompletePrepared`."""
    digest: bytes
    """BLAKE2b-128 over all slices."""
    nth: int
    pieces: tuple[Piece, ...]


def stage_pieces(command: StagePieces, tx: Tx) -> int | None:
    upload = any_upload(tx, command.bucket, command.key, command.upload, command.user, command.root)
    if upload.state != UploadState.OPEN or upload.last_part != command.last_part:
        return None
    before = unpack_staged(upload.staged)
    done = len(before.bodies) if before.digest == command.digest else 0
    if command.nth != done:
        return done if command.nth < done else None
    wanted = [(RUN, (run,)) for run in dict.fromkeys(piece.run for piece in command.pieces)]
    tx.prefetch(wanted)
    if any(tx.get(*run) is None for run in wanted):
        return None
    tx.need_feature(STAGED_FEATURE)
    made = tx.new_id()
    tx.emit(BodyMade(made, tuple((int(Shape.RUN), *piece) for piece in command.pieces)))
    tx.emit(PiecesStaged(command.bucket, command.key, upload.id, command.digest, made))
    return done + 1


def _weigh(command: CompletePrepared) -> int:
    return weigh_key(command) + command.slices + (len(command.pieces) + len(command.facts)) // WEIGHT_BYTES


@command(127, weight=_weigh)
class CompletePrepared(Command[CompletedObject | None]):
    """Make the current version of *key* from values that the caller computed from the upload's parts. Emits
    `PartsTakenOver`.

    Answers as `CompleteUpload` does, or None if a part was added after the caller read them, or if the staged bodies
    are not those of this completion: then nothing is changed.
    Raises `NoSuchBucket`, `AccessDenied`, `NoSuchUpload`, `PreconditionFailed`, `NoSuchKey`."""

    bucket: str
    key: bytes
    user: int
    root: bool
    upload: str
    digest: bytes
    """`part_list_digest` of the list of parts that the client sent."""
    last_part: int
    """`last_part` of the upload's row when the caller read its parts."""
    size: int
    etag: str
    checksums: bytes
    """The object's checksums, packed."""
    pieces: bytes
    facts: bytes
    joined: bytes
    conditions: Preconditions | None = None
    staged: bytes = b""
    """`StagePieces.digest`; empty if no pieces had to be staged."""
    slices: int = 0
    """In how many slices pieces were staged."""


def complete_prepared(command: CompletePrepared, tx: Tx) -> CompletedObject | None:
    upload = any_upload(tx, command.bucket, command.key, command.upload, command.user, command.root)
    if upload.state != UploadState.OPEN:
        return repeat_result(command, command.digest, upload, tx)
    if upload.last_part != command.last_part:
        return None
    before = unpack_staged(upload.staged)
    if command.slices and (before.digest, len(before.bodies)) != (command.staged, command.slices):
        return None
    location = locate_key(tx, command.bucket, command.key, command.user, command.root)
    if location.entry is not None:
        prefetch_neighbours(tx, location.entry)
    if command.conditions is not None:
        check_write(command.conditions, command.key, object_state(tx, location.entry))
    tx.need_feature(PREPARED_FEATURE)
    body = tx.new_id()
    tx.emit(
        PartsTakenOver(
            command.bucket, command.key, upload.id, body, command.size, command.pieces, command.facts, command.joined,
            command.slices > 0,
        )
    )  # fmt: skip
    return finish_upload(
        command, upload, location, body, command.size, command.etag, command.checksums, command.digest, tx
    )


HANDLERS: dict[type[Any], Any] = {CompletePrepared: complete_prepared, StagePieces: stage_pieces}
