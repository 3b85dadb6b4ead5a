"""Parse the XML of requests into a small tree. No DTD, no entities but XML's own five, everything bounded.

Entity tricks (expansion, external files) need a document type declaration, so its mere presence ends the parsing.

A document is parsed in slices between which the event loop runs. With each slice expat starts anew with a token that
has not ended, and it hands over a start tag at once, however many attributes it has: so tokens are bounded, and with
them the work on one slice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from xml.parsers import expat

from s3api.errors import S3Error

MAX_DEPTH = 12
MAX_ELEMENTS = 50_000
"""10,000 parts with a checksum each are 40,000 elements. Python's garbage collector walks all of them in one go."""
MAX_CHILDREN = 128
"""Of an element other than the outermost one; there are at most 100 grants, and 50 tags."""
MAX_ATTRIBUTES = 16
MAX_TOKEN_BYTES = 8 << 10
"""Of a tag with its attributes, a comment, a processing instruction, a declaration or a reference."""
MAX_TEXT_CHARS = 16 << 10
"""Of one element. The longest text that an operation reads is a key of 1,024 bytes."""


class Element:
    """One element: its local name, its text, its children."""

    __slots__ = ("children", "name", "text")

    def __init__(self, name: str) -> None:
        self.name = name
        self.text = ""
        self.children: list[Element] = []

    def all(self, name: str) -> list[Element]:
        """The children called *name*."""
        return [child for child in self.children if child.name == name]

    def first(self, name: str) -> Element | None:
        """The first child called *name*."""
        for child in self.children:
            if child.name == name:
                return child
        return None

    def get(self, name: str) -> str | None:
        """The text of the first child called *name*."""
        for child in self.children:
            if child.name == name:
                return child.text
        return None

    def need(self, name: str) -> str:
        """The same, which must be there. Raises S3Error MalformedXML."""
        text = self.get(name)
        if text is None:
            raise S3Error("MalformedXML")
        return text


class _Refused(Exception):
    """The document holds what none of S3's does."""


class XmlReader:
    """A document that comes in slices. A slice of `SLICE_BYTES` is parsed in about a millisecond."""

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
        """The next slice. Raises S3Error MalformedXML."""
        try:
            self._parser.Parse(piece, last)
        except (expat.ExpatError, _Refused, ValueError):
            raise S3Error("MalformedXML") from None
        self._fed_bytes += len(piece)
        # The parser stands where the token begins that has not ended.
        if self._fed_bytes - self._parser.CurrentByteIndex > MAX_TOKEN_BYTES and not last:
            raise S3Error("MalformedXML")

    def root(self, name: str) -> Element:
        """The outermost element, behind the last slice. Raises S3Error MalformedXML unless it is called *name*."""
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
            return  # the blanks between children, of which there may be many
        element.text += data
        if len(element.text) > MAX_TEXT_CHARS:
            raise _Refused

    def _refuse(self, *_what: object) -> None:
        raise _Refused


SLICE_BYTES = 8 << 10


def parse_xml(raw: bytes, root: str) -> Element:
    """The document in *raw*, UTF-8, whose outermost element is called *root*. Raises S3Error MalformedXML."""
    reader = XmlReader()
    for _ in _slices(reader, raw):
        pass
    return reader.root(root)


async def read_xml(raw: bytes, root: str) -> Element:
    """As `parse_xml`, letting the event loop run between slices."""
    reader = XmlReader()
    for _ in _slices(reader, raw):
        await asyncio.sleep(0)
    return reader.root(root)


def _slices(reader: XmlReader, raw: bytes) -> Iterator[None]:
    for at in range(0, len(raw), SLICE_BYTES):
        reader.feed(raw[at : at + SLICE_BYTES])
        yield
    reader.feed(b"", last=True)
