"""Parse the XML of requests into a small tree. All sizes are limited.

A document type declaration is rejected, since entity attacks (expansion, external files) need one. Only XML's own five
entities are known.

A document is parsed in slices, between which the event loop runs. Expat parses an incomplete token again with each
slice, and reports a start tag with all its attributes at once. The limit on the length of a token therefore limits the
work for one slice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from xml.parsers import expat

from s3api.errors import S3Error

MAX_DEPTH = 12
MAX_ELEMENTS = 50_000
"""10,000 parts with checksums are 40,000 elements. Python's garbage collector visits all of them in one pass."""
MAX_CHILDREN = 128
"""The limit of children of an element other than the outermost one. There are at most 100 grants, and 50 tags."""
MAX_ATTRIBUTES = 16
MAX_TOKEN_BYTES = 8 << 10
"""The limit of a tag with its attributes, a comment, a processing instruction, a declaration or a reference."""
MAX_TEXT_CHARS = 16 << 10
"""The limit of one element's text. The longest text that an operation reads is a key of 1,024 bytes."""


class Element:
    """An element: its local name, its text and its children."""

    __slots__ = ("children", "name", "text")

    def __init__(self, name: str) -> None:
        self.name = name
        self.text = ""
        self.children: list[Element] = []

    def all(self, name: str) -> list[Element]:
        """Return the children called *name*."""
        return [child for child in self.children if child.name == name]

    def first(self, name: str) -> Element | None:
        """Return the first child called *name*, if any."""
        for child in self.children:
            if child.name == name:
                return child
        return None

    def get(self, name: str) -> str | None:
        """Return the text of the first child called *name*, if any."""
        for child in self.children:
            if child.name == name:
                return child.text
        return None

    def need(self, name: str) -> str:
        """Return the text of the first child called *name*. Raises S3Error MalformedXML if there is none."""
        text = self.get(name)
        if text is None:
            raise S3Error("MalformedXML")
        return text


class _Refused(Exception):
    """The document contains what no S3 document does, or exceeds a limit."""


class XmlReader:
    """Parses a document in slices. A slice of `SLICE_BYTES` takes about a millisecond."""

    __slots__ = ("_count", "_fed_bytes", "_parser", "_root", "_stack")

    def __init__(self) -> None:
        self._fed_bytes = 0
        self._root: Element | None = None
        self._stack: list[Element] = []
        self._count = 0
        parser = self._parser = expat.ParserCreate("utf-8")
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        parser.StartDoctypeDeclHandler = self._refuse
        parser.EntityDeclHandler = self._refuse

    def feed(self, piece: bytes, *, last: bool = False) -> None:
        """Parse the next slice. Raises S3Error MalformedXML."""
        try:
            self._parser.Parse(piece, last)
        except (expat.ExpatError, _Refused, ValueError):
            raise S3Error("MalformedXML") from None
        self._fed_bytes += len(piece)
        # CurrentByteIndex is the start of the incomplete token.
        if self._fed_bytes - self._parser.CurrentByteIndex > MAX_TOKEN_BYTES and not last:
            raise S3Error("MalformedXML")

    def root(self, name: str) -> Element:
        """Return the outermost element after the last slice. Raises S3Error MalformedXML unless it is called *name*."""
        if self._root is None or self._root.name != name:
            raise S3Error("MalformedXML")
        return self._root

    def _start(self, name: str, attributes: Mapping[str, str]) -> None:
        self._count += 1
        if len(self._stack) >= MAX_DEPTH or self._count > MAX_ELEMENTS or len(attributes) > MAX_ATTRIBUTES:
            raise _Refused
        element = Element(name.rpartition(":")[2])
        if self._stack:
            parent = self._stack[-1]
            if len(self._stack) > 1 and len(parent.children) >= MAX_CHILDREN:
                raise _Refused
            parent.children.append(element)
        else:
            self._root = element
        self._stack.append(element)

    def _end(self, _name: str) -> None:
        self._stack.pop()

    def _text(self, data: str) -> None:
        element = self._stack[-1]
        if element.children and data.isspace():
            return  # white space between children
        element.text += data
        if len(element.text) > MAX_TEXT_CHARS:
            raise _Refused

    def _refuse(self, *_what: object) -> None:
        raise _Refused


SLICE_BYTES = 8 << 10


def parse_xml(raw: bytes, root: str) -> Element:
    """Parse *raw* and return its outermost element, which must be called *root*. Raises S3Error MalformedXML."""
    reader = XmlReader()
    for _ in _slices(reader, raw):
        pass
    return reader.root(root)


async def read_xml(raw: bytes, root: str) -> Element:
    """Do what `parse_xml` does, and let the event loop run between slices."""
    reader = XmlReader()
    for _ in _slices(reader, raw):
        await asyncio.sleep(0)
    return reader.root(root)


def _slices(reader: XmlReader, raw: bytes) -> Iterator[None]:
    for at in range(0, len(raw), SLICE_BYTES):
        reader.feed(raw[at : at + SLICE_BYTES])
        yield
    reader.feed(b"", last=True)
