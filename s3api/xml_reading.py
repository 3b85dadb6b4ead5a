"""XML in: a small tree out of what a stranger sent. Pure; no DTD, no entities but XML's own five, all bounded.

Entity tricks (expansion, external files) need a document type declaration, so its mere presence ends the parsing.
"""

from __future__ import annotations

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


class _Builder:
    __slots__ = ("count", "root", "stack")

    def __init__(self) -> None:
        self.root: Element | None = None
        self.stack: list[Element] = []
        self.count = 0

    def start(self, name: str, _attributes: object) -> None:
        self.count += 1
        if len(self.stack) >= MAX_DEPTH or self.count > MAX_ELEMENTS:
            raise _Refused
        element = Element(name.rpartition(":")[2])
        if self.stack:
            self.stack[-1].children.append(element)
        else:
            self.root = element
        self.stack.append(element)

    def end(self, _name: str) -> None:
        self.stack.pop()

    def text(self, data: str) -> None:
        self.stack[-1].text += data

    def refuse(self, *_what: object) -> None:
        raise _Refused


def parse_xml(raw: bytes, root: str) -> Element:
    """The document in *raw*, UTF-8, whose outermost element is called *root*. Raises S3Error MalformedXML."""
    builder = _Builder()
    parser = expat.ParserCreate("utf-8")
    parser.buffer_text = True
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.text
    parser.StartDoctypeDeclHandler = builder.refuse
    parser.EntityDeclHandler = builder.refuse
    try:
        parser.Parse(raw, True)
    except (expat.ExpatError, _Refused, ValueError):
        raise S3Error("MalformedXML") from None
    if builder.root is None or builder.root.name != root:
        raise S3Error("MalformedXML")
    return builder.root
