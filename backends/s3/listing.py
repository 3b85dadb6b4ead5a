"""List the values below a prefix: in order, page by page.

Pages are parsed here, in a thread: botocore's parser blocks the event loop for 80 µs per line. A server may be broken
or hostile. So a page is bounded in bytes, lines and depth, may have no document type (and so no entities), and must
advance. A listing that repeats itself, goes backwards, names objects outside the prefix, or continues without a token
raises `Corrupted`. Names that are no keys of values are skipped. The caller does not see them and cannot bound them, so
a listing with too many such names, or with too many pages without a key, raises `Corrupted` too. Endless keys in order
cannot be distinguished from many keys: the caller has to bound the walk.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NamedTuple
from urllib.parse import unquote_plus
from xml.parsers import expat

from backends import base, errors
from backends.base import Listed

LINES = 1_000
"""Lines of a page: the maximum of S3."""
PAGE_BYTES_MAX = 4 << 20
"""A line has at most 1,024 bytes of key, each encoded as three, and some hundred bytes more."""
EMPTY_PAGES_MAX = 100
"""Consecutive truncated pages without a line. S3 allows them, and no server sends many in a row."""
SKIPPED_NAMES_MAX = 1_000_000
"""Names in one listing that are no keys of values: objects that people put below the prefix by hand."""
KEYLESS_PAGES_MAX = 10_000
"""Pages in one listing without a key of a value: ten times as many as `SKIPPED_NAMES_MAX` names fill."""

_DEPTH_MAX = 8
_PIECE_BYTES = 64 << 10  # other threads run between two pieces
_FIELDS = {"Key", "Size"}
_SWITCHES = {"IsTruncated", "NextContinuationToken", "EncodingType"}


class Page(NamedTuple):
    """One response to ListObjectsV2."""

    lines: list[Listed]
    """All objects of the page, by their whole names in the bucket."""
    token: str
    """The continuation token of the next page; empty where this is the last one."""


Fetch = Callable[[str, str], Awaitable[bytes]]
"""Fetches a page as XML: the first one after a key, or the one that a token names. Either may be empty."""


async def list_values(fetch: Fetch, root: str, prefix: str, after: str, name: str) -> AsyncIterator[Listed]:
    """Yield the values below *root* whose key begins with *prefix* and is greater than *after*.

    *fetch* gets the pages of the names that begin with *root* and *prefix*. *name* is the backend's, for errors. If the
    listing is cancelled after it has skipped names that are no keys, the `CancelledError` has a note with their number
    (`backends.errors.notes_suffix`)."""
    progress, token = _Progress(root, root + prefix), ""
    while True:
        try:
            raw = await fetch(root + after if after else "", token)
        except asyncio.CancelledError as cancelled:
            progress.add_note_to(cancelled)
            raise
        try:
            page = await asyncio.to_thread(parse_page, raw)
            keys = progress.keys_of(page)
        except ValueError as error:
            raise errors.Corrupted(f"its listing is wrong: {error}", backend=name) from error
        for line in keys:
            if line.key > after:
                yield line
        token = page.token
        if not token:
            return


class _Progress:
    """How far a listing has come, and the checks of its next page."""

    def __init__(self, root: str, prefix: str) -> None:
        self._root, self._prefix = root, prefix
        self._last, self._last_key = "", ""
        self._empty = self._keyless = self._skipped = 0
        self._skipped_name = ""

    def add_note_to(self, cancelled: BaseException) -> None:
        """Add the number of skipped names to *cancelled*, for the message of the caller that gives the listing up."""
        if self._skipped:
            cancelled.add_note(
                f"below {self._prefix!r} it has {self._skipped:,} names so far that are no keys of Entrepot's, such "
                f"as {self._skipped_name!r}; move them elsewhere, since the prefix is for Entrepot alone"
            )

    def keys_of(self, page: Page) -> list[Listed]:
        """Return the values of *page*. Raises `ValueError` where it does not continue the pages before it."""
        found = []
        for line in page.lines:
            if not line.key.startswith(self._prefix):
                raise ValueError(f"it names {line.key[:100]!r}, which is not below {self._prefix!r}")
            key = line.key[len(self._root) :]
            if not _is_key(key):  # put there by hand; servers order such names differently
                self._skipped_name = line.key[:100]
                continue
            if key <= self._last_key:
                raise ValueError(f"{key!r} comes after {self._last_key!r}")
            found.append(Listed(key, line.size))
            self._last_key = key
        self._check_advance(page)
        self._check_skipped(page, found)
        return found

    def _check_advance(self, page: Page) -> None:
        last = max((line.key for line in page.lines), default="")
        self._empty = 0 if page.lines else self._empty + 1
        if self._empty > EMPTY_PAGES_MAX:
            raise ValueError(f"{self._empty} pages in a row are empty")
        if page.lines and last <= self._last:
            raise ValueError(f"a page ends with {last[:100]!r}, and the one before it with {self._last[:100]!r}")
        self._last = max(last, self._last)

    def _check_skipped(self, page: Page, found: list[Listed]) -> None:
        """Bound the skipped names, which the caller does not see."""
        self._skipped += len(page.lines) - len(found)
        self._keyless += not found
        if self._skipped > SKIPPED_NAMES_MAX:
            raise ValueError(
                f"below {self._prefix!r} it has more than {SKIPPED_NAMES_MAX:,} names that are no keys of Entrepot's, "
                f"up to {self._last[:100]!r}; move them elsewhere, since the prefix is for Entrepot alone"
            )
        if self._keyless > KEYLESS_PAGES_MAX:
            raise ValueError(
                f"below {self._prefix!r} it has more than {KEYLESS_PAGES_MAX:,} pages without a key of Entrepot's, up "
                f"to {self._last[:100]!r}"
            )


def parse_page(raw: bytes) -> Page:
    """Parse a page. Raises `ValueError` with the reason if it is not valid. Releases the interpreter lock often."""
    parser = _Parser()
    return parser.parse(raw)


class _Parser:
    """Parses one page."""

    def __init__(self) -> None:
        self._path: list[str] = []
        self._text: list[str] = []
        self._fields: dict[str, str] = {}
        self._switches: dict[str, str] = {}
        self._lines: list[tuple[str, str]] = []
        self._expat = expat.ParserCreate()
        self._expat.buffer_text = True
        self._expat.StartElementHandler = self._start
        self._expat.EndElementHandler = self._end
        self._expat.CharacterDataHandler = self._text.append
        self._expat.StartDoctypeDeclHandler = self._refuse_doctype

    def parse(self, raw: bytes) -> Page:
        try:
            for at in range(0, len(raw), _PIECE_BYTES):
                self._expat.Parse(raw[at : at + _PIECE_BYTES], False)
            self._expat.Parse(b"", True)
        except (expat.ExpatError, UnicodeError) as error:
            raise ValueError(f"it is not XML: {error}") from error
        finally:
            del self._expat  # breaks the reference cycle
        return self._page()

    def _page(self) -> Page:
        url_encoded = self._switches.get("EncodingType") == "url"
        lines = [Listed(unquote_plus(key) if url_encoded else key, int(size)) for key, size in self._lines]
        truncated = self._switches.get("IsTruncated", "false").strip().lower() == "true"
        token = self._switches.get("NextContinuationToken", "")
        if truncated and not token:
            raise ValueError("it is truncated, and has no continuation token")
        return Page(lines, token if truncated else "")

    def _start(self, tag: str, _: object) -> None:
        if not self._path and tag != "ListBucketResult":
            raise ValueError(f"it is a {tag[:100]!r} and not a ListBucketResult")
        self._path.append(tag)
        self._text.clear()
        if len(self._path) > _DEPTH_MAX:
            raise ValueError("it is nested too deeply")

    def _end(self, tag: str) -> None:
        self._path.pop()
        if self._path == ["ListBucketResult", "Contents"] and tag in _FIELDS:
            self._fields[tag] = "".join(self._text)
        elif self._path == ["ListBucketResult"] and tag in _SWITCHES:
            self._switches[tag] = "".join(self._text)
        elif self._path == ["ListBucketResult"] and tag == "Contents":
            self._add_line()
        self._text.clear()

    def _add_line(self) -> None:
        key, size = self._fields.get("Key", ""), self._fields.get("Size", "").strip()
        if not key or not (size.isascii() and size.isdigit() and len(size) < 19):
            raise ValueError("one of its lines has no key, or no size")
        self._lines.append((key, size))
        self._fields.clear()
        if len(self._lines) > LINES:
            raise ValueError(f"a page has more than {LINES} lines")

    def _refuse_doctype(self, *_: object) -> None:
        raise ValueError("it has a document type")


def _is_key(name: str) -> bool:
    """Return whether *name* is a key that a value may have. That of the control folder, for example, is not."""
    try:
        base.check_key(name)
    except ValueError:
        return False
    return True
