"""Asking a gateway: verbs packed and posted, several in one trip where they come together, and the answers read.

A change bears a mark under which the gateway makes it once, whichever of its workers is asked again.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, Self

import aiohttp

from gateway.errors import Busy, CommitterGone, EntrepotError, Refused, SessionExpired
from gateway.posix.api import Verbs
from gateway.posix.rpc import protocol
from gateway.posix.rpc.call_batcher import Gathering
from gateway.posix.rpc.endpoint import Gateway
from gateway.posix.rpc.methods import TRAVELLING, Travelling
from gateway.posix.rpc.protocol import Asked, Verb
from gateway.posix.rpc.schema import Malformed
from gateway.posix.rpc.transport import Posting
from gateway.timing import Timing, timing_from_environment

ANSWER_BYTES_MOST = 64 << 20
_TWICE = frozenset({"begin_upload", "copy_part", "complete_upload", "abort_upload"})
"""What may be done twice, of what brings no bytes: it is asked for anew where nobody knows what became of it."""


class Asking(Verbs):
    """A gateway that is asked, by the verbs that `wire_verbs` has. Made by `connect`; for one event loop of one
    process."""

    def __init__(self, posting: Posting, timing: Timing) -> None:
        self._posting = posting
        self._timing = timing.files
        self._memory = ""
        self._looks = Gathering(self._together, protocol.VERBS_MOST)
        self._changes = Gathering(self._together, protocol.VERBS_MOST)

    @classmethod
    async def connect(cls, gateway: Gateway, timing: Timing | None = None) -> Self:
        """A gateway that answers. *timing*: what the environment says, unless given.

        Raises `AccessDenied`, `Unavailable`, `Misconfigured`; `Refused` where no version is spoken by both."""
        timing = timing or timing_from_environment()
        self = cls(Posting(gateway, timing), timing)
        try:
            await self._ask(Asked(()))  # is it there, is one known there, and which memory has it?
        except BaseException:
            await self.close()
            raise
        return self

    async def close(self) -> None:
        """End its connections."""
        await self._posting.close()

    end_session = close

    def forget(self) -> None:
        """It was inherited by a fork and is the parent's, or nobody runs its loop any more."""
        self._posting.forget()

    def presigned(self, bucket: str, key: bytes, seconds: int) -> str:
        """The address under which whoever has it may read an object for so long."""
        return self._posting.presigned(b"/" + bucket.encode() + b"/" + key, seconds)

    # --- asking -------------------------------------------------------------------------------------------------------

    async def compound(self, calls: Sequence[tuple[str, tuple[Any, ...]]], *, stop: bool = False) -> list[Any]:
        found: list[Any] = []
        while len(found) < len(calls):
            some = calls[len(found) : len(found) + protocol.VERBS_MOST]
            results = await self._results(some, stop)
            if not results:
                raise Refused("the gateway ran none of the verbs")
            found += results
            if stop and isinstance(found[-1], EntrepotError):
                break
        return found + [None] * (len(calls) - len(found))

    async def _together(self, calls: Sequence[tuple[str, tuple[Any, ...]]]) -> list[Any]:
        return await self._results(calls, stop=False, together=len(calls) > 1)

    async def _results(
        self, calls: Sequence[tuple[str, tuple[Any, ...]]], stop: bool, together: bool = False
    ) -> list[Any]:
        """Those of the first ones; the rest was not run."""
        verbs = [Verb(name, TRAVELLING[name].plain(*arguments)) for name, arguments in calls]
        once = secrets.token_bytes(protocol.ONCE_BYTES) if any(TRAVELLING[name].changes for name, _ in calls) else b""
        answers = await self._ask(Asked(verbs, stop, once, self._memory, together=together))
        found: list[Any] = []
        for (name, _), answer in zip(calls, answers, strict=True):
            if answer[0] == protocol.NOT_RUN:
                break
            found.append(result_of(TRAVELLING[name], answer))
        return found

    async def _call(self, name: str, *arguments: Any) -> Any:
        for last in (False, True):
            (found,) = await self._results([(name, arguments)], stop=False)
            if not isinstance(found, EntrepotError):
                return found
            if last or name not in _TWICE or not isinstance(found, CommitterGone | SessionExpired):
                raise found
        raise AssertionError("the last one is raised")

    async def _gathered(self, through: Gathering, name: str, *arguments: Any) -> Any:
        """One call, which shares its trip with others that are asked at the same time."""
        protocol.pack(TRAVELLING[name].plain(*arguments))  # what cannot travel is its own caller's mistake
        found = await through.call(name, arguments)
        if isinstance(found, Busy):
            return await self._call(name, *arguments)  # alone, and until there is room for it
        if isinstance(found, EntrepotError):
            raise found
        return found

    async def _ask(self, asked: Asked) -> tuple[tuple[Any, ...], ...]:
        packed = protocol.packed_request(asked)
        seconds = self._timing.retry_seconds if asked.verbs else self._timing.hello_seconds
        posted = self._posting.post(protocol.VERBS, "", packed, len(packed), all_of, seconds=seconds)
        answered = answer_of(await posted)
        self._memory = answered.memory
        if len(answered.results) != len(asked.verbs):
            raise Refused(f"{len(answered.results)} results for {len(asked.verbs)} verbs")
        return answered.results


async def all_of(response: aiohttp.ClientResponse) -> bytes:
    """An answer that is read whole."""
    length = response.content_length
    if length is None or length > ANSWER_BYTES_MOST:
        raise Refused(f"an answer of {length} bytes")
    return await response.content.readexactly(length)


def answer_of(packed: bytes) -> protocol.Answered:
    try:
        return protocol.read_answer(packed)
    except Malformed as wrong:
        raise Refused(f"the gateway's answer cannot be understood: {wrong}") from None


def result_of(travelling: Travelling, answer: tuple[Any, ...]) -> Any:
    """A verb's result, or the error that it was refused with."""
    try:
        if answer[0] == protocol.OK:
            return travelling.result.read(answer[1], "the result")
        return protocol.error_of(answer[1], answer[2])
    except (Malformed, IndexError, TypeError) as wrong:
        raise Refused(f"the gateway's answer cannot be understood: {wrong}") from None
