"""Operations on multipart uploads: create, list, complete, abort. `writes.py` and `copies.py` store parts."""

from __future__ import annotations

from collections import deque
from typing import Any

from gateway.engine.base import EngineBase, preconditions
from gateway.engine.types import (
    NO_CONDITIONS,
    Caller,
    Conditions,
    ObjectMeta,
    PartPage,
    Stored,
    UploadPage,
    WantedPart,
)
from gateway.errors import Busy
from gateway.journal.columns import first_checksum, pack_map
from gateway.journal.turns import Turns
from gateway.namespace import keys
from gateway.namespace.commands import complete, prepare_completion
from gateway.namespace.commands.complete import CompleteUpload
from gateway.namespace.commands.uploads import AbortUpload, CreateUpload
from gateway.namespace.read import listing_uploads

PARTS_AT_ONCE = 256
"""Parts that one command may read: a few milliseconds of the committer's time."""
TRIES = 5
"""How often a completion is prepared anew because a part arrived meanwhile."""
PREPARED_AT_ONCE = 2
"""Completions of many parts that one process prepares at the same time."""
WAITERS_MAX = 256
"""Completions that may wait for their turn. Each holds the client's list of parts in memory."""


class UploadOperations(EngineBase):
    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        self._preparing = Turns(deque(range(PREPARED_AT_ONCE)), WAITERS_MAX, "completions of many parts")

    async def create_upload(
        self, caller: Caller, bucket: str, key: bytes, meta: ObjectMeta, checksum_algorithm: str, checksum_type: str
    ) -> str:
        """Create an upload. Returns its id. Raises `NoSuchBucket`, `AccessDenied`, `InvalidKey`."""
        keys.check_new_key(key)
        command = CreateUpload(
            bucket, key, *caller.acting_in(bucket), checksum_algorithm, checksum_type,
            pack_map(meta.headers), pack_map(meta.tags),
        )  # fmt: skip
        return await self._send(command)

    async def list_parts(
        self, caller: Caller, bucket: str, key: bytes, upload: str, after_number: int = 0, limit: int = 1000
    ) -> PartPage:
        """Return a page of the parts of an upload. Raises `NoSuchUpload`."""
        return listing_uploads.list_parts(
            self._store, self._bucket_row(caller, bucket), key, upload, after_number, limit
        )

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
        """Return a page of the open uploads, by key and then by creation."""
        row = self._bucket_row(caller, bucket)
        return await listing_uploads.list_uploads(self._store, row, prefix, delimiter, after_key, after_upload, limit)

    async def complete_upload(
        self,
        caller: Caller,
        bucket: str,
        key: bytes,
        upload: str,
        wanted: list[WantedPart],
        conditions: Conditions = NO_CONDITIONS,
        expected_checksum: tuple[str, str] | None = None,
        expected_type: str | None = None,
        expected_size: int | None = None,
    ) -> Stored:
        """Make an object of the parts that the client names. A repeated request with the same list gets the same
        result.

        Raises `NoSuchUpload`, `InvalidPart`, `InvalidPartOrder`, `EntityTooSmall`, `BadChecksum`,
        `PreconditionFailed`, `InvalidArgument`; `Busy` if too many completions of many parts wait, or if parts keep
        arriving."""
        algorithm, value = expected_checksum or ("", "")
        command = CompleteUpload(
            bucket, key, *caller.acting_in(bucket), upload, tuple(_wanted(each) for each in wanted),
            algorithm, value, expected_type or "", expected_size, preconditions(conditions),
        )  # fmt: skip
        finished = await self._complete(caller, command)
        return Stored(
            finished.etag, finished.version, finished.size, finished.modified_ns, first_checksum(finished.checksums)
        )

    async def _complete(self, caller: Caller, command: CompleteUpload) -> complete.CompletedObject:
        """Send *command*. If it names many parts, or parts that were copied from several runs, prepare it in slices
        first."""
        if len(command.parts) <= PARTS_AT_ONCE:
            finished = await self._send(command)
            if finished is not None:
                return finished
        wait_seconds = self._writer.wait_seconds or self._journal.timing.journal.slot_seconds
        turn = await self._preparing.acquire(caller.user_id, wait_seconds)
        try:
            for _ in range(TRIES):
                self._bucket_row(caller, command.bucket)
                finished = await self._prepare_and_send(command)
                if finished is not None:
                    return finished
        finally:
            self._preparing.release(turn)
        raise Busy("parts keep arriving while the upload is completed")

    async def _prepare_and_send(self, command: CompleteUpload) -> complete.CompletedObject | None:
        """Return the result; None if a part arrived meanwhile."""
        needed = await prepare_completion.preparation_bytes(self._store, command)
        async with self._writer.budget.charged(needed, self._writer.wait_seconds, command.user):
            prepared = await prepare_completion.prepare_completion(self._store, command)
            if prepared is None:
                return None
            staged = 0
            for slice_of_pieces in prepared.slices:
                if slice_of_pieces.nth < staged:
                    continue  # an earlier try has staged it
                staged_now = await self._send(slice_of_pieces)
                if staged_now is None:
                    return None
                staged = staged_now
            return await self._send(prepared.completion)

    async def abort_upload(self, caller: Caller, bucket: str, key: bytes, upload: str) -> None:
        """Abort an upload. Raises `NoSuchUpload`."""
        await self._send(AbortUpload(bucket, key, *caller.acting_in(bucket), upload))


def _wanted(part: WantedPart) -> complete.WantedPart:
    algorithm, value = part.checksum or ("", "")
    return complete.WantedPart(part.number, part.etag, value, algorithm)
