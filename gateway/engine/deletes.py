"""Deleting one object, or up to a thousand in one request."""

from __future__ import annotations

import asyncio
from collections import deque

from gateway.engine.base import EngineBase, preconditions
from gateway.engine.types import NO_CONDITIONS, Caller, Conditions, Deleted, DeleteOne
from gateway.errors import BY_WIRE_CODE, EntrepotError, Refused
from gateway.namespace.commands.objects import DeleteObject, DeleteObjects, Doomed, slices

SLICES_AT_ONCE = 4
"""Slices of one request that are sent at the same time: they may share a commit."""


class DeleteOperations(EngineBase):
    async def delete(
        self,
        caller: Caller,
        bucket: str,
        key: bytes,
        version: str | None = None,
        conditions: Conditions = NO_CONDITIONS,
    ) -> Deleted:
        """Delete a key, or one version of it. Deleting an absent key succeeds.

        Raises `NoSuchBucket`, `AccessDenied`, `PreconditionFailed`, and `NoSuchKey` for a condition on an absent
        key."""
        command = DeleteObject(bucket, key, *caller.acting_in(bucket), version or "", preconditions(conditions))
        gone, marker = await self._send(command)
        return Deleted(gone, marker)

    async def delete_many(self, caller: Caller, bucket: str, wanted: list[DeleteOne]) -> list[Deleted | EntrepotError]:
        """Delete many keys. Returns an outcome for each, in the order of *wanted*.

        The keys are sent to the committer in slices, a few at a time, so that commands of other clients run in between.
        If a slice fails as a whole, its error is the outcome of its keys and of all keys that were not sent yet. If no
        key has an outcome by then, the error is raised."""
        doomed = [Doomed(each.key, each.version or "", preconditions(each.conditions)) for each in wanted]
        waiting = deque(slices(doomed))
        # If a key is named twice, the order of the operations on it must be kept.
        distinct = len({each.key for each in doomed}) == len(doomed)
        outcomes: list[Deleted | EntrepotError] = []
        while waiting:
            some = [waiting.popleft() for _ in range(min(SLICES_AT_ONCE if distinct else 1, len(waiting)))]
            sent = [self._send(DeleteObjects(bucket, *caller.acting_in(bucket), each)) for each in some]
            failed: EntrepotError | None = None
            for keys, answer in zip(some, await asyncio.gather(*sent, return_exceptions=True), strict=True):
                if not isinstance(answer, BaseException):
                    outcomes += [_outcome(*each) for each in answer]
                elif outcomes and isinstance(answer, EntrepotError):
                    outcomes += [answer] * len(keys)
                    failed = answer
                else:
                    raise answer
            if failed is not None:
                outcomes += [failed for keys in waiting for _ in keys]
                break
        return outcomes


def _outcome(error: str, *rest: object) -> Deleted | EntrepotError:
    if error:
        return BY_WIRE_CODE.get(error, Refused)(*rest)
    version, marker = rest
    return Deleted(version, bool(marker))  # type: ignore[arg-type]
