"""Deleting objects, one or a thousand."""

from __future__ import annotations

from gateway.engine.counter import Counter, preconditions
from gateway.engine.types import NO_CONDITIONS, Caller, Conditions, Deleted, DeleteOne
from gateway.errors import BY_NAME, EntrepotError, Refused
from gateway.namespace.objects import DeleteObject, DeleteObjects, Doomed


class Removals(Counter):
    async def delete(
        self,
        caller: Caller,
        bucket: str,
        key: bytes,
        version: str | None = None,
        conditions: Conditions = NO_CONDITIONS,
    ) -> Deleted:
        """Delete a key, or one version of it. What was absent is deleted already.

        Raises `NoSuchBucket`, `AccessDenied`, `PreconditionFailed`, and `NoSuchKey` where a condition asks for what
        is not there."""
        command = DeleteObject(bucket, key, caller.user_id, caller.root, version or "", preconditions(conditions))
        gone, marker = await self._send(command)
        return Deleted(gone, marker)

    async def delete_many(self, caller: Caller, bucket: str, wanted: list[DeleteOne]) -> list[Deleted | EntrepotError]:
        """Delete many keys in one command. Each has its own outcome."""
        doomed = tuple(Doomed(each.key, each.version or "", preconditions(each.conditions)) for each in wanted)
        outcomes = await self._send(DeleteObjects(bucket, caller.user_id, caller.root, doomed))
        return [_outcome(*each) for each in outcomes]


def _outcome(error: str, *rest: object) -> Deleted | EntrepotError:
    if error:
        return BY_NAME.get(error, Refused)(*rest)
    version, marker = rest
    return Deleted(version, bool(marker))  # type: ignore[arg-type]
