"""Multipart uploads, but for their parts' bytes: begin, list, complete, abort."""

from __future__ import annotations

from gateway.engine.counter import Counter, preconditions
from gateway.engine.types import (
    NO_CONDITIONS,
    Caller,
    Conditions,
    Meta,
    PartPage,
    Stored,
    UploadPage,
    WantedPart,
)
from gateway.errors import Busy
from gateway.journal.packed import checksum, pack_map
from gateway.namespace import completing, holdings, keys, preparing
from gateway.namespace.completing import CompleteUpload
from gateway.namespace.uploads import AbortUpload, CreateUpload

PARTS_AT_ONCE = 256
"""Parts that one command may look at: a few milliseconds of the committer's time."""
TRIES = 5
"""How often parts are looked at anew, because another one came meanwhile."""


class Uploads(Counter):
    async def create_upload(
        self, caller: Caller, bucket: str, key: bytes, meta: Meta, checksum_algorithm: str, checksum_type: str
    ) -> str:
        """Begin an upload. Answers its id. Raises `NoSuchBucket`, `AccessDenied`, `InvalidKey`."""
        keys.check(key)
        command = CreateUpload(
            bucket, key, caller.user_id, caller.root, checksum_algorithm, checksum_type, pack_map(meta.headers),
            pack_map(meta.tags),
        )  # fmt: skip
        return str(await self._send(command))

    async def list_parts(
        self, caller: Caller, bucket: str, key: bytes, upload: str, after_number: int = 0, limit: int = 1000
    ) -> PartPage:
        """Raises `NoSuchUpload`."""
        return holdings.list_parts(self._store, self._bucket(caller, bucket), key, upload, after_number, limit)

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
        """The open uploads, by key and then by when they began."""
        row = self._bucket(caller, bucket)
        return await holdings.list_uploads(self._store, row, prefix, delimiter, after_key, after_upload, limit)

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
        """Make an object of the parts that are named. Asked again with the same list, it answers the same.

        Raises `NoSuchUpload`, `InvalidPart`, `InvalidPartOrder`, `EntityTooSmall`, `BadChecksum`,
        `PreconditionFailed`."""
        algorithm, value = promised_checksum or ("", "")
        command = CompleteUpload(
            bucket, key, caller.user_id, caller.root, upload, tuple(_wanted(each) for each in wanted),
            algorithm, value, promised_type or "", promised_size, preconditions(conditions),
        )  # fmt: skip
        version, modified_ns, etag, size, packed = await self._complete(caller, command)
        return Stored(etag, version, size, modified_ns, checksum(packed))

    async def _complete(self, caller: Caller, command: CompleteUpload) -> completing.Finished:
        """Send the command, or, where it names many parts, one that was prepared of them."""
        if len(command.parts) <= PARTS_AT_ONCE:
            return tuple(await self._send(command))
        for _ in range(TRIES):
            self._bucket(caller, command.bucket)
            prepared = await preparing.prepared(self._store, command)
            finished = await self._send(command if prepared is None else prepared)
            if finished is not None:
                return tuple(finished)
        raise Busy("parts of the upload come all the time while it is completed")

    async def abort_upload(self, caller: Caller, bucket: str, key: bytes, upload: str) -> None:
        """Raises `NoSuchUpload`."""
        await self._send(AbortUpload(bucket, key, caller.user_id, caller.root, upload))


def _wanted(part: WantedPart) -> completing.WantedPart:
    algorithm, value = part.checksum or ("", "")
    return completing.WantedPart(part.number, part.etag, value, algorithm)
