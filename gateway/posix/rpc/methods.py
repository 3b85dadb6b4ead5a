"""The verbs that travel: the shapes of their arguments and results. Each is a method of `Verbs` of the same name.

A verb's name and the order of its arguments keep their meaning for good; a new argument comes last.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from gateway.engine.types import (
    BucketInfo,
    ByteRange,
    Conditions,
    Meta,
    ObjectInfo,
    Page,
    PartInfo,
    Stored,
    WantedPart,
)
from gateway.errors import EntrepotError
from gateway.journal.columns import Checksum, PartFact
from gateway.posix.api import Directory
from gateway.posix.rpc.protocol import error_of, plain_error
from gateway.posix.rpc.schema import (
    BLOB,
    BOOLEAN,
    BYTES,
    INTEGER,
    NOTHING,
    TEXT,
    UNSIGNED,
    Either,
    Many,
    Optional,
    Shape,
    Texts,
    Together,
    between,
    named,
)

PAGE_MOST = 1000
KEYS_MOST = 1000
PARTS_MOST = 10_000
HEADERS_MOST = 2 << 10
"""More than the bytes allow that S3 has for a user's metadata."""


class _Error:
    """A refusal among results."""

    def plain(self, value: Any) -> Any:
        return plain_error(value)

    def read(self, plain: Any, at: str) -> EntrepotError:
        return error_of(*plain[:2])


ETAGS = Many(TEXT, 100, tuple)
CONDITIONS = named(
    Conditions, if_match=ETAGS, if_none_match=ETAGS, if_modified_since_ns=Optional(INTEGER),
    if_unmodified_since_ns=Optional(INTEGER), if_size=Optional(INTEGER), if_modified_at_ns=Optional(INTEGER),
)  # fmt: skip
OFFSET = between(0, (1 << 63) - 1)
NUMBER = between(1, PARTS_MOST)
SIZE = between(0, 5 << 30)
"""Of what one request writes: S3's greatest."""
RANGE = named(ByteRange, start=Optional(OFFSET), end=Optional(OFFSET))
META = named(Meta, headers=Texts(HEADERS_MOST), tags=Texts(HEADERS_MOST))
CHECKSUM = named(Checksum, algorithm=TEXT, type=TEXT, value=TEXT)
WANTED_PARTS = Many(named(WantedPart, number=NUMBER, etag=TEXT), PARTS_MOST)
BUCKET = named(BucketInfo, name=TEXT, region=TEXT, made_ns=INTEGER, owner=INTEGER, versioning=INTEGER)
OBJECT = named(
    ObjectInfo, key=BYTES, size=INTEGER, etag=TEXT, modified_ns=INTEGER, version=Optional(TEXT), is_latest=BOOLEAN,
    headers=Texts(HEADERS_MOST), tags_count=INTEGER, checksums=BLOB, parts_count=INTEGER, owner=INTEGER,
)  # fmt: skip
DIRECTORY = named(Directory, made=BOOLEAN)
STORED = named(
    Stored, etag=TEXT, version=Optional(TEXT), size=INTEGER, modified_ns=INTEGER, checksum=Optional(CHECKSUM)
)  # fmt: skip
PART = named(PartInfo, number=INTEGER, size=INTEGER, etag=TEXT, modified_ns=INTEGER, checksum=TEXT)
FACTS = Many(named(PartFact, number=INTEGER, size=INTEGER, etag=TEXT, crc64nvme=UNSIGNED, checksum=TEXT), PARTS_MOST)
SHOWN = Together(BYTES, INTEGER, TEXT, INTEGER, INTEGER, Optional(BLOB))
PAGE = named(
    Page, groups=Many(Together(BYTES, Many(SHOWN, PAGE_MOST)), PAGE_MOST), prefixes=Many(BYTES, PAGE_MOST),
    next=Optional(BYTES),
)  # fmt: skip
OPENED = Together(OBJECT, INTEGER, INTEGER)
"""The facts, and the first byte and the length of what comes."""


@dataclass(frozen=True)
class Travelling:
    """How one verb travels."""

    arguments: dict[str, Shape]
    result: Shape = NOTHING
    changes: bool = False
    by_name: frozenset[str] = frozenset()
    """Arguments that the method takes by name alone."""

    def plain(self, *values: Any) -> tuple[Any, ...]:
        """The arguments, ready to be packed."""
        return tuple(shape.plain(value) for shape, value in zip(self.arguments.values(), values, strict=True))

    def read(self, name: str, plain: tuple[Any, ...]) -> tuple[list[Any], dict[str, Any]]:
        """The arguments again, by place and by name. Raises `Malformed`."""
        return self.by_place(named(tuple_of, **self.arguments).read(plain, name))

    def by_place(self, values: Iterable[Any]) -> tuple[list[Any], dict[str, Any]]:
        """Arguments as the method takes them: by place and by name."""
        pairs = list(zip(self.arguments, values, strict=True))
        return (
            [value for argument, value in pairs if argument not in self.by_name],
            {argument: value for argument, value in pairs if argument in self.by_name},
        )


def tuple_of(*values: Any) -> tuple[Any, ...]:
    return values


def _verb(
    result: Shape = NOTHING, changes: bool = False, by_name: Iterable[str] = (), **arguments: Shape
) -> Travelling:
    return Travelling(arguments, result, changes, frozenset(by_name))


_AT: dict[str, Any] = {"bucket": TEXT, "key": BYTES}

TRAVELLING: dict[str, Travelling] = {
    "buckets": _verb(Together(Many(BUCKET, PAGE_MOST), Optional(TEXT)), after=TEXT),
    "bucket": _verb(BUCKET, name=TEXT),
    "make_bucket": _verb(changes=True, name=TEXT),
    "drop_bucket": _verb(changes=True, name=TEXT),
    "look": _verb(Either((ObjectInfo, OBJECT), (Directory, DIRECTORY)), **_AT),
    "page": _verb(PAGE, bucket=TEXT, prefix=BYTES, delimiter=BYTES, after=BYTES),
    "copy": _verb(
        STORED, changes=True, **_AT, to_bucket=TEXT, to_key=BYTES, meta=Optional(META), conditions=CONDITIONS
    ),
    "move": _verb(changes=True, **_AT, to_bucket=TEXT, to_key=BYTES),
    "remove": _verb(
        Many(Optional(_Error()), KEYS_MOST), changes=True, by_name=("must_exist",), bucket=TEXT,
        keys=Many(BYTES, KEYS_MOST), must_exist=BOOLEAN,
    ),
    "rename": _verb(changes=True, by_name=("directory",), bucket=TEXT, path=BYTES, to_path=BYTES, directory=BOOLEAN),
    "mkdir": _verb(changes=True, bucket=TEXT, path=BYTES),
    "rmdir": _verb(changes=True, bucket=TEXT, path=BYTES),
    "begin_upload": _verb(TEXT, changes=True, **_AT, meta=META),
    "copy_part": _verb(
        PART, changes=True, **_AT, upload=TEXT, number=NUMBER, source=BYTES, wanted=RANGE, etag=TEXT
    ),
    "tags": _verb(Texts(HEADERS_MOST), **_AT),
    "parts": _verb(FACTS, **_AT),
    "complete_upload": _verb(
        STORED, changes=True, **_AT, upload=TEXT, parts=WANTED_PARTS, conditions=CONDITIONS
    ),
    "abort_upload": _verb(changes=True, **_AT, upload=TEXT),
}  # fmt: skip
"""What `verbs` carries."""

OPEN = _verb(OPENED, **_AT, wanted=Optional(RANGE), conditions=CONDITIONS)
"""What `read` carries, as the verb `open`."""

WRITING: dict[str, Travelling] = {
    "put": _verb(STORED, changes=True, **_AT, size=SIZE, meta=META, conditions=CONDITIONS),
    "put_part": _verb(PART, changes=True, **_AT, upload=TEXT, number=NUMBER, size=SIZE),
}
"""What `write` carries. The size in bytes is that of the body."""
