"""Copies under another policy: the bytes are read and stored anew, since a block has one policy.

A copy under the same policy shares the runs of its source and does not need this. A name that is moved keeps its bytes,
and so their policy.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.blocks.digests import Digests
from gateway.blocks.types import WriteContext
from gateway.blocks.write.writer import StoredRun
from gateway.engine.base import pack_checksums, preconditions
from gateway.engine.reads import ReadOperations
from gateway.engine.types import Caller, Conditions, ObjectMeta, PartInfo, Stored
from gateway.engine.writes import CRC64, FULL, WriteOperations
from gateway.journal.columns import Checksum, pack_map, unpack_checksums
from gateway.journal.tables import Shape
from gateway.namespace.commands.objects import PutObject
from gateway.namespace.commands.uploads import PutPart
from gateway.namespace.read.lookups import Content, Found

RUNS_AT_ONCE = 500


class RewriteCopyOperations(ReadOperations, WriteOperations):
    def _needs_rewrite(self, context: WriteContext, file: Content) -> bool:
        """Return whether any byte of the file was written under another policy than that of *context*."""
        if not self._write_targets.has_several_policies or not file.size:
            return False
        runs = [file.content]
        if file.shape != Shape.RUN:
            runs = sorted({run for run, _, _ in self._lookup.pieces_of(file.content)})
        return any(
            self._has_other_policy(runs[at : at + RUNS_AT_ONCE], context.targets.policy)
            for at in range(0, len(runs), RUNS_AT_ONCE)
        )

    def _has_other_policy(self, runs: Sequence[int], policy: int) -> bool:
        marks = ", ".join("?" * len(runs))
        statement = f"SELECT 1 FROM run WHERE id IN ({marks}) AND policy <> ? LIMIT 1"
        return bool(self._store.query(statement, (*runs, policy)))

    async def _store_rewritten(
        self, caller: Caller, found: Found, file: Content, context: WriteContext, bucket: str, key: bytes,
        meta: ObjectMeta | None, tags: bytes, conditions: Conditions, algorithm: str | None,
    ) -> Stored:  # fmt: skip
        """Store the bytes of the object as *key* under *context*, with the headers of *meta*, or its own for None."""
        known = unpack_checksums(file.checksums)
        shown = algorithm or (known[0].algorithm if known else CRC64)
        digests = Digests(shown)
        with self._journal.reading():
            pieces = self._reader.read(self._ranges(found, file, 0, file.size))
            async with self._writer.storing(context, pieces, file.size, digests) as stored:
                await digests.finish()
                made = [Checksum(shown, FULL, digests.value(shown))]
                if shown != CRC64:
                    made.append(Checksum(CRC64, FULL, digests.value(CRC64)))
                etag = digests.md5.hex()
                version, modified_ns = await self._send(
                    PutObject(
                        bucket, key, *caller.acting_in(bucket), stored.size, etag, stored.extents,
                        stored.blocks,
                        context.targets.policy, file.headers if meta is None else pack_map(meta.headers),
                        pack_checksums(made), tags, preconditions(conditions),
                    )
                )  # fmt: skip
        return Stored(etag, version, stored.size, modified_ns, made[0])

    async def _store_rewritten_part(
        self, caller: Caller, found: Found, file: Content, context: WriteContext, bucket: str, key: bytes, upload: str,
        number: int, start: int, length: int, algorithm: str,
    ) -> PartInfo:  # fmt: skip
        """Store a range of the object under *context* as a part of an upload."""
        digests = Digests(algorithm or None)
        with self._journal.reading():
            pieces = self._reader.read(self._ranges(found, file, start, length))
            async with self._writer.storing(context, pieces, length, digests) as stored:
                await digests.finish()
                value = digests.value(algorithm) if algorithm else ""
                modified_ns = await self._send(
                    self._part(caller, bucket, key, upload, number, stored, context, digests, value)
                )
        return PartInfo(number, length, digests.md5.hex(), modified_ns, value)

    def _part(
        self, caller: Caller, bucket: str, key: bytes, upload: str, number: int, stored: StoredRun, context:
        WriteContext, digests: Digests, value: str,
    ) -> PutPart:  # fmt: skip
        return PutPart(
            bucket, key, *caller.acting_in(bucket), upload, number, stored.size, digests.md5.hex(),
            stored.extents, stored.blocks, context.targets.policy, digests.crc64nvme, value,
        )  # fmt: skip
