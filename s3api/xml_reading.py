"""XML in: a small tree out of what a stranger sent. Pure; no DTD, no entities but XML's own five, all bounded.

Entity tricks (expansion, external files) need a document type declaration, so its mere presence ends the parsing.
"""

from __future__ import annotations

import asyncio
from xml.parsers import expat

from s3api.errors import S3Error

MAX_DEPTH = 12
MAX_ELEMENTS = 100_000
"""10,000 parts with a checksum each are 40,000 elements."""


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

    __slots__ = ("_count", "_parser", "_root", "_stack")

    def __init__(self) -> None:
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

    def root(self, name: str) -> Element:
        """The outermost element, behind the last slice. Raises S3Error MalformedXML unless it is called *name*."""
        if self._root is None or self._root.name != name:
            raise S3Error("MalformedXML")
        return self._root

    def _start(self, name: str, _attributes: object) -> None:
        self._count += 1
        if len(self._stack) >= MAX_DEPTH or self._count > MAX_ELEMENTS:
            raise _Refused
        element = Element(name.rpartition(":")[2])
        if self._stack:
            self._stack[-1].children.append(element)
        else:
            self._root = element
        self._stack.append(element)

    def _end(self, _name: str) -> None:
        self._stack.pop()

    def _text(self, data: str) -> None:
        self._stack[-1].text += data

    def _refuse(self, *_what: object) -> None:
        raise _Refused


SLICE_BYTES = 32 << 10


def parse_xml(raw: bytes, root: str) -> Element:
    """The document in *raw*, UTF-8, whose outermost element is called *root*. Raises S3Error MalformedXML."""
    reader = XmlReader()
    reader.feed(raw, last=True)
    return reader.root(root)


async def read_xml(raw: bytes, root: str) -> Element:
    """As `parse_xml`, letting others have their turn between slices."""
    reader = XmlReader()
    for at in range(0, len(raw), SLICE_BYTES):
        reader.feed(raw[at : at + SLICE_BYTES])
        await asyncio.sleep(0)
    reader.feed(b"", last=True)
    return reader.root(root)
