"""Listing what lies below a prefix: in order, page by page, and nothing but values.

Pages are parsed here, in a thread: botocore's parser holds the event loop for 80 µs a line. A server may be broken or
hostile, so a page is bounded in bytes, lines and depth, has no document type (and so no entities), and each page must
get on: a listing that repeats itself, goes backwards, names what was not asked for, or goes on without saying where,
raises `Corrupted`. Names that are no keys of ours are passed over, so the caller cannot bound them: a listing with too
many of them, or of pages without a key, raises `Corrupted`, too. Keys that go on for ever, in order, cannot be told
from many keys: whoever walks a listing bounds the walk.
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
"""Of a page: the most that S3 gives out."""
PAGE_BYTES_MAX = 4 << 20
"""A line has at most 1,024 bytes of key, each spelt as three, and some hundred bytes more."""
EMPTY_PAGES_MAX = 100
"""Pages without a line, of which the last says that more follows. S3 allows them, and none sends many in a row."""
STRANGERS_MAX = 1_000_000
"""Names in one listing that are no keys of ours: what people put below the prefix by hand, although it is ours."""
KEYLESS_PAGES_MAX = 10_000
"""Pages in one listing without a key of ours: ten times as many as `STRANGERS_MAX` names fill."""

_DEPTH_MAX = 8
_PIECE_BYTES = 64 << 10  # between two of them other threads run
_FIELDS = {"Key", "Size"}
_SWITCHES = {"IsTruncated", "NextContinuationToken", "EncodingType"}


class Page(NamedTuple):
    """One answer to ListObjectsV2."""

    lines: list[Listed]
    """Whole names in the bucket, whatever they are."""
    token: str
    """What asks for the next page; empty where this is the last one."""


Fetch = Callable[[str, str], Awaitable[bytes]]
"""Gets a page as XML: the first one behind a key, or the one that a token stands for; either may be empty."""


async def listed(fetch: Fetch, root: str, wanted: str, after: str, name: str) -> AsyncIterator[Listed]:
    """The values below *root* whose key, without it, begins with *wanted* and is greater than *after*. *fetch* gets
    the pages of what begins with both; *name* is the backend's, for errors. If it is cancelled after it has passed over
    names that are no keys, the `CancelledError` has a note that says how many (`backends.errors.notes_suffix`)."""
    progress, token = _Progress(root, root + wanted), ""
    while True:
        try:
            raw = await fetch(root + after if after else "", token)
        except asyncio.CancelledError as cancelled:
            progress.explain(cancelled)
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
    """How far a listing has come, and what the next page of it may hold."""

    def __init__(self, root: str, prefix: str) -> None:
        self._root, self._prefix = root, prefix
        self._last, self._last_key = "", ""
        self._empty = self._keyless = self._strangers = 0
        self._stranger = ""

    def explain(self, cancelled: BaseException) -> None:
        """Add to *cancelled* what was passed over, so that who gives up the listing can say it."""
        if self._strangers:
            cancelled.add_note(
                f"below {self._prefix!r} it has {self._strangers:,} names so far that are no keys of Entrepot's, such "
                f"as {self._stranger!r}; move them elsewhere, since the prefix is for Entrepot alone"
            )

    def keys_of(self, page: Page) -> list[Listed]:
        """The lines of *page* that are values. Raises `ValueError` where it does not continue the ones before it."""
        found = []
        for line in page.lines:
            if not line.key.startswith(self._prefix):
                raise ValueError(f"it names {line.key[:100]!r}, which is not below {self._prefix!r}")
            key = line.key[len(self._root) :]
            if not _is_key(key):  # put there by hand: in what order, servers do not agree
                self._stranger = line.key[:100]
                continue
            if key <= self._last_key:
                raise ValueError(f"{key!r} comes behind {self._last_key!r}")
            found.append(Listed(key, line.size))
            self._last_key = key
        self._see_that_it_gets_on(page)
        self._see_that_it_holds_keys(page, found)
        return found

    def _see_that_it_gets_on(self, page: Page) -> None:
        last = max((line.key for line in page.lines), default="")
        self._empty = 0 if page.lines else self._empty + 1
        if self._empty > EMPTY_PAGES_MAX:
            raise ValueError(f"{self._empty} pages in a row are empty")
        if page.lines and last <= self._last:
            raise ValueError(f"a page ends with {last[:100]!r}, and the one before it with {self._last[:100]!r}")
        self._last = max(last, self._last)

    def _see_that_it_holds_keys(self, page: Page, found: list[Listed]) -> None:
        """Bound what is passed over: the caller sees nothing of it."""
        self._strangers += len(page.lines) - len(found)
        self._keyless += not found
        if self._strangers > STRANGERS_MAX:
            raise ValueError(
                f"below {self._prefix!r} it has more than {STRANGERS_MAX:,} names that are no keys of Entrepot's, up "
                f"to {self._last[:100]!r}; move them elsewhere, since the prefix is for Entrepot alone"
            )
        if self._keyless > KEYLESS_PAGES_MAX:
            raise ValueError(
                f"below {self._prefix!r} it has more than {KEYLESS_PAGES_MAX:,} pages without a key of Entrepot's, up "
                f"to {self._last[:100]!r}"
            )


def parse_page(raw: bytes) -> Page:
    """The page in *raw*. Raises `ValueError` with the reason if it is none. Holds no lock for long at a time."""
    parser = _Parser()
    return parser.parse(raw)


class _Parser:
    """Of one answer."""

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
            raise ValueError(f"it is no XML: {error}") from error
        finally:
            del self._expat  # which knows us, as we know it
        return self._page()

    def _page(self) -> Page:
        spelt = self._switches.get("EncodingType") == "url"
        lines = [Listed(unquote_plus(key) if spelt else key, int(size)) for key, size in self._lines]
        truncated = self._switches.get("IsTruncated", "false").strip().lower() == "true"
        token = self._switches.get("NextContinuationToken", "")
        if truncated and not token:
            raise ValueError("it goes on, and does not say where")
        return Page(lines, token if truncated else "")

    def _start(self, tag: str, _: object) -> None:
        if not self._path and tag != "ListBucketResult":
            raise ValueError(f"it is a {tag[:100]!r} and no ListBucketResult")
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
    """Whether one of ours may be called that; the control folder, for one, may not."""
    try:
        base.check_key(name)
    except ValueError:
        return False
    return True
