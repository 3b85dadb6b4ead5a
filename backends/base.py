"""The contract: one place that stores whole, immutable values under keys. No method has a default.

A wrapper is a backend around a backend and overrides every method; drivers do not know each other. What a docstring
says here is a promise that `tests/backends/contract.py` checks on every driver and every wrapper.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from awscrt import checksums

Buffer = bytes | bytearray | memoryview

KEY_CHARS_MAX = 512
SEGMENT_CHARS_MAX = 200
_SEGMENT = re.compile(rf"[0-9a-z_-][0-9a-z._-]{{0,{SEGMENT_CHARS_MAX - 1}}}")


class Stat(NamedTuple):
    """What is known of a value without reading it."""

    size: int  # bytes
    md5: str = ""
    """In hex, where the place tells it by itself. Equal to a value's, it is that value; another one says nothing, since
    some places tell something else in its stead."""


class Listed(NamedTuple):
    """One line of a listing."""

    key: str
    size: int  # bytes


LINEAGE_MAX = 16
"""Tokens that a fence remembers."""


class IssuedToken(NamedTuple):
    """One fencing token, and the record of the journal behind which it was drawn."""

    counter: int
    nonce: str
    """Hex."""
    number: int
    """Of the last record before it; 0 where there was none."""
    hash: str
    """The journal's running hash there, hex."""


class Fence(NamedTuple):
    """A committer's stamp on a place: its fencing token, and how far its journal had come when it stamped.

    The (number, hash) pair identifies the whole history up to there: a journal that has another hash at this number, or
    ends before it, is older than the one that stamped the place, or has parted from it."""

    counter: int
    nonce: str
    """Hex. Counter and nonce are the token."""
    number: int
    """Of the last durable record when the place was stamped."""
    hash: str
    """The journal's running hash there, hex."""
    at_ns: int
    """When it was stamped, by the clock of who did. For people; nothing is decided by it."""
    replaces: str
    """The `key` of the fence that this one replaces; empty where the place bore none."""
    lineage: tuple[IssuedToken, ...]
    """The latest tokens of that history, oldest first; the last one is this fence's own."""

    @property
    def key(self) -> str:
        """Tells this stamp from every other one."""
        return f"{self.counter}.{self.nonce}.{self.number}.{self.hash}"


class Marker(NamedTuple):
    """Whose place this is: the site's id in hex, the id that its journal gave to this backend, and the journal's
    incarnation, which a restore from a backup raises. And which committer stamped it last; None: none ever did."""

    site: str
    backend: int
    incarnation: int
    fence: Fence | None = None

    @property
    def bare(self) -> Marker:
        """Without the fence: whose place this is, and nothing else."""
        return self._replace(fence=None)


class Backend(ABC):
    """One place that stores blocks. Safe for many concurrent calls on one event loop.

    Keys are segments of ``[0-9a-z._-]`` joined by ``/``; none is empty or begins with a dot, and no key is a folder
    of another. A malformed key, a negative start or length is a `ValueError`. Any method may raise any class of
    `backends.errors` but `NotFound`, which only `get` and `stat` raise. When a call is cancelled it may still take
    effect later.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """What people call this place: for errors, logs and metrics."""

    @abstractmethod
    async def put(self, key: str, value: Sequence[Buffer], crc32c: int) -> None:
        """Store all of *value*, the buffers one after the other, or nothing.

        Once this returns the value is durable and its *crc32c* (of the whole) confirmed; a value that differs from
        it raises `Corrupted` and leaves nothing. Nobody ever sees part of a value. The same key again with the same
        bytes is fine; a key is never used again for other bytes. The buffers must not change until this returns.
        """

    @abstractmethod
    async def get(self, key: str, start: int = 0, length: int | None = None) -> Buffer:
        """Exactly the *length* bytes from *start* on, or all from *start* on.

        A range that reaches behind the end, or a short answer, raises `Corrupted`; an absent key `NotFound`. Whether
        the bytes are those that were put is for the caller to check: a medium may rot.
        """

    @abstractmethod
    def get_now(self, key: str, start: int = 0, length: int | None = None) -> Buffer | None:
        """What `get` would answer, if it is at hand without waiting; else None, and the caller awaits `get`.

        Never waits and never raises a `BackendError`: whatever is odd is left to `get`. Remote drivers answer None.
        """

    @abstractmethod
    async def stat(self, key: str) -> Stat:
        """The value's size, and its MD5 where that costs no reading. An absent key raises `NotFound`."""

    @abstractmethod
    async def delete(self, key: str) -> None:
        """Drop the value; an absent key is fine. Works on a full medium. Durable once this returns: no power cut brings
        the value back, unless another process put it a moment ago and died with the power."""

    @abstractmethod
    def list(self, prefix: str = "", after: str = "") -> AsyncIterator[Listed]:
        """The values whose key begins with *prefix* and is greater than *after*, in byte order of their keys.

        Memory does not grow with what is listed. A value put or deleted meanwhile may be in it or not. The marker
        and whatever a driver keeps for itself are not listed.
        """

    @abstractmethod
    async def marker(self) -> Marker | None:
        """Whose place this is; None while nobody claimed it."""

    @abstractmethod
    async def claim(self, marker: Marker) -> None:
        """Make the place *marker*'s, durably, by the rule of `check_claim`; else raise `OwnedByAnotherSite`. Of
        several that
        claim at once, one wins and the others are judged by its marker. A claim that `is_claimed` already changes
        nothing; so one without a fence never removes a fence."""

    @abstractmethod
    async def close(self) -> None:
        """Finish what is under way and let go of everything. Calls after it are a mistake; closing twice is fine."""


def check_key(key: str) -> str:
    """*key* itself, or `ValueError` with the reason."""
    if len(key) > KEY_CHARS_MAX:
        raise ValueError(f"a backend key has at most {KEY_CHARS_MAX} characters: {key[:64]!r}…")
    for segment in key.split("/"):
        if not is_segment(segment):
            raise ValueError(f"not a backend key: {key!r} (segment {segment!r})")
    return key


def is_segment(name: str) -> bool:
    """Whether *name* may be a part of a key."""
    return _SEGMENT.fullmatch(name) is not None


def check_range(start: int, length: int | None) -> None:
    """`ValueError` if a range is negative."""
    if start < 0 or (length is not None and length < 0):
        raise ValueError(f"not a range: start {start}, length {length}")


def check_claim(held: Marker | None, wanted: Marker) -> str | None:
    """None if *wanted* may replace *held*, else the reason why not. Pure.

    A marker gives way to one of its own site whose incarnation is as high or higher. Within one incarnation the
    backend's id must agree: two backends of one site must not share a place. A restore may number backends anew, so
    a higher incarnation may bring another id.

    A marker with a fence is a compare-and-set: it replaces the same place's marker whose fence it names, and nothing
    else. So of two committers that stamp a place one fails, and nobody stamps an empty mount point.
    """
    if wanted.fence is not None:
        if held is None or held.bare != wanted.bare:
            return "it does not bear the marker that was to be stamped"
        if wanted.fence.replaces != (held.fence.key if held.fence is not None else ""):
            return "another committer of this site has stamped it meanwhile"
        return None
    if held is None:
        return None
    if held.site != wanted.site:
        return f"it belongs to site {held.site}, not to {wanted.site}"
    if held.incarnation > wanted.incarnation:
        return (
            f"incarnation {held.incarnation} of this site holds it, and this is the older {wanted.incarnation}: "
            "the site was restored from a backup elsewhere"
        )
    if held.incarnation == wanted.incarnation and held.backend != wanted.backend:
        return f"it is backend {held.backend} of this site already, and cannot be backend {wanted.backend} too"
    return None


def is_claimed(held: Marker | None, wanted: Marker) -> bool:
    """Whether the place bears what *wanted* asks for already. Pure."""
    return held is not None and (held == wanted if wanted.fence is not None else held.bare == wanted)


def size_of(value: Sequence[Buffer]) -> int:
    """How many bytes the buffers hold together."""
    return sum(buffer.nbytes if isinstance(buffer, memoryview) else len(buffer) for buffer in value)


def crc32c_of(value: Sequence[Buffer]) -> int:
    """The CRC32C of the buffers one after the other."""
    crc = 0
    for buffer in value:
        crc = checksums.crc32c(buffer, crc)
    return crc
