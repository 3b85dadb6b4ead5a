"""The contract of a backend: a store of whole, immutable values under keys. No method has a default.

A wrapper is a backend around a backend (see `wrappers`). Drivers do not know each other. `tests/backends/contract.py`
checks what the docstrings here promise, for every driver and every wrapper.
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
    """What a backend knows of a value without reading it."""

    size: int  # bytes
    md5: str = ""
    """The MD5 in hex, where the backend stores one; empty otherwise. If it equals a value's MD5, the values are equal.
    If it differs, nothing follows: some servers return something else in its place."""


class Listed(NamedTuple):
    """One value of a listing."""

    key: str
    size: int  # bytes


LINEAGE_MAX = 16
"""The number of tokens that a fence holds."""


class IssuedToken(NamedTuple):
    """A fencing token, and the last record of the journal when it was drawn."""

    counter: int
    nonce: str
    """Hex."""
    number: int
    """The number of the last record before the token; 0 where there was none."""
    hash: str
    """The journal's running hash at that record, hex."""


class Fence(NamedTuple):
    """A committer's stamp on a backend: its fencing token, and the end of its journal when it stamped.

    The pair (number, hash) identifies the whole history up to there. A journal that has another hash at this number, or
    that ends before it, is older than the one that stamped the backend, or has diverged from it."""

    counter: int
    nonce: str
    """Hex. Counter and nonce are the token."""
    number: int
    """The number of the last durable record when the backend was stamped."""
    hash: str
    """The journal's running hash at that record, hex."""
    at_ns: int
    """When it was stamped, by the clock of the committer's machine. Informative: no decision depends on it."""
    replaces: str
    """The `key` of the fence that this one replaces; empty where there was none."""
    lineage: tuple[IssuedToken, ...]
    """The latest tokens of that history, oldest first; the last one is this fence's own."""

    @property
    def key(self) -> str:
        """Identifies this stamp among all stamps."""
        return f"{self.counter}.{self.nonce}.{self.number}.{self.hash}"


class Marker(NamedTuple):
    """Who owns a backend: the site's id in hex, the id that the site's journal gave to this backend, and the journal's
    incarnation, which a restore from a backup raises. `fence` is the last stamp of a committer; None before the first.
    """

    site: str
    backend: int
    incarnation: int
    fence: Fence | None = None

    @property
    def without_fence(self) -> Marker:
        """The same owner, without the stamp."""
        return self._replace(fence=None)


class Backend(ABC):
    """A place that stores blocks. All methods are safe to call concurrently on one event loop.

    Keys are segments of ``[0-9a-z._-]`` joined by ``/``. No segment is empty or begins with a dot, and no key is a
    folder of another. A malformed key, and a negative start or length, raise `ValueError`. Any method may raise any
    class of `backends.errors`, except that only `get` and `stat` raise `NotFound`. A call that is cancelled may still
    take effect later.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """The configured name of this backend: for errors, logs and metrics."""

    @abstractmethod
    async def put(self, key: str, value: Sequence[Buffer], crc32c: int) -> None:
        """Store all of *value*, the buffers one after the other, or nothing.

        Once this returns, the value is durable and its *crc32c* (of the whole) has been verified. A value that differs
        from it raises `Corrupted` and leaves nothing. No reader ever sees part of a value. To put the same bytes again
        under the same key is harmless; a key is never used again for other bytes. The buffers must not change until
        this returns.
        """

    @abstractmethod
    async def get(self, key: str, start: int = 0, length: int | None = None) -> Buffer:
        """Return exactly the *length* bytes from *start* on, or all bytes from *start* on.

        A range that ends after the value, or a short answer, raises `Corrupted`; a missing key raises `NotFound`. The
        caller has to verify that the bytes are those that were put: storage may rot.
        """

    @abstractmethod
    def get_now(self, key: str, start: int = 0, length: int | None = None) -> Buffer | None:
        """Return what `get` would return if that is possible without waiting; else None, and the caller awaits `get`.

        Never waits and never raises a `BackendError`: every problem is left to `get`. Remote drivers return None.
        """

    @abstractmethod
    async def stat(self, key: str) -> Stat:
        """Return the value's size, and its MD5 where that needs no reading. A missing key raises `NotFound`."""

    @abstractmethod
    async def delete(self, key: str) -> None:
        """Delete the value; a missing key is no error. Works on a full medium. Durable once this returns: no power cut
        brings the value back, unless another process put it shortly before and died with the power."""

    @abstractmethod
    def list(self, prefix: str = "", after: str = "") -> AsyncIterator[Listed]:
        """Yield the values whose key begins with *prefix* and is greater than *after*, in byte order of their keys.

        Memory does not grow with the number of values. A value that is put or deleted meanwhile may be yielded or not.
        The marker and the driver's own files are not yielded.
        """

    @abstractmethod
    async def marker(self) -> Marker | None:
        """Return who owns this backend; None while nobody has claimed it."""

    @abstractmethod
    async def claim(self, marker: Marker) -> None:
        """Write *marker*, durably, if `check_claim` allows it; else raise `OwnedByAnotherSite`.

        Of several concurrent claims one succeeds, and the others are judged by its marker. A claim for which
        `is_claimed` is true already changes nothing; so a claim without a fence never removes a fence."""

    @abstractmethod
    async def close(self) -> None:
        """Finish the calls under way and release all resources. No call may follow, except that closing twice is
        harmless."""


def check_key(key: str) -> str:
    """Return *key*. Raises `ValueError` with the reason if it is malformed."""
    if len(key) > KEY_CHARS_MAX:
        raise ValueError(f"a backend key has at most {KEY_CHARS_MAX} characters: {key[:64]!r}…")
    for segment in key.split("/"):
        if not is_segment(segment):
            raise ValueError(f"not a backend key: {key!r} (segment {segment!r})")
    return key


def is_segment(name: str) -> bool:
    """Return whether *name* may be a segment of a key."""
    return _SEGMENT.fullmatch(name) is not None


def check_range(start: int, length: int | None) -> None:
    """Raise `ValueError` if *start* or *length* is negative."""
    if start < 0 or (length is not None and length < 0):
        raise ValueError(f"not a range: start {start}, length {length}")


def check_claim(held: Marker | None, wanted: Marker) -> str | None:
    """Return None if *wanted* may replace *held*, else the reason why not. Pure.

    A marker may be replaced by one of its own site whose incarnation is equal or higher. Within one incarnation the
    backend's id must be equal: two backends of one site must not share a place. A restore may number backends anew, so
    a higher incarnation may bring another id.

    A marker with a fence is a compare-and-set: it replaces only a marker of the same owner whose fence it names in
    `replaces`. So of two committers that stamp a backend one fails, and nobody stamps an empty mount point.
    """
    if wanted.fence is not None:
        if held is None or held.without_fence != wanted.without_fence:
            return "it does not have the marker that was to be stamped"
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
    """Return whether the marker *held* already grants what *wanted* asks for. Pure."""
    return held is not None and (held == wanted if wanted.fence is not None else held.without_fence == wanted)


def size_of(value: Sequence[Buffer]) -> int:
    """Return the number of bytes in all buffers together."""
    return sum(buffer.nbytes if isinstance(buffer, memoryview) else len(buffer) for buffer in value)


def crc32c_of(value: Sequence[Buffer]) -> int:
    """Return the CRC32C of the buffers one after the other."""
    crc = 0
    for buffer in value:
        crc = checksums.crc32c(buffer, crc)
    return crc
