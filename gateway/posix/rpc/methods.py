"""The methods of `FileApi` that a gateway offers, with the schemas of their arguments and results.

A method's name and the order of its arguments never change their meaning; a new argument is appended. The arguments
have the names and the order of the method's signature in `FileApi`, without the body.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gateway.engine.types import (
    BucketInfo,
    ByteRange,
    Conditions,
    ObjectInfo,
    ObjectMeta,
    Page,
    PartInfo,
    Stored,
    WantedPart,
)
from gateway.errors import EntrepotError
from gateway.journal.columns import Checksum, PartSummary
from gateway.posix.api import Directory
from gateway.posix.rpc.protocol import decode_error, encode_error
from gateway.posix.rpc.schema import (
    BLOB,
    BOOLEAN,
    BYTES,
    INTEGER,
    NOTHING,
    TEXT,
    UNSIGNED,
    ListOf,
    OptionalOf,
    Schema,
    TaggedUnion,
    TextMap,
    TupleOf,
    decode_fields,
    integer_between,
    struct,
)

PAGE_MOST = 1000
KEYS_MOST = 1000
PARTS_MOST = 10_000
HEADERS_MOST = 2 << 10
"""More entries than fit into the bytes that S3 allows for user metadata."""


class _Error:
    """An error among the elements of a result."""

    def encode(self, value: Any) -> Any:
        return encode_error(value)

    def decode(self, encoded: Any, at: str) -> EntrepotError:
        return decode_error(*encoded[:2])


ETAGS = ListOf(TEXT, 100, tuple)
CONDITIONS = struct(
    Conditions, if_match=ETAGS, if_none_match=ETAGS, if_modified_since_ns=OptionalOf(INTEGER),
    if_unmodified_since_ns=OptionalOf(INTEGER), if_size=OptionalOf(INTEGER), if_modified_at_ns=OptionalOf(INTEGER),
)  # fmt: skip
OFFSET = integer_between(0, (1 << 63) - 1)
NUMBER = integer_between(1, PARTS_MOST)
SIZE = integer_between(0, 5 << 30)
"""Bytes that one request writes; the maximum is that of S3."""
RANGE = struct(ByteRange, start=OptionalOf(OFFSET), end=OptionalOf(OFFSET))
META = struct(ObjectMeta, headers=TextMap(HEADERS_MOST), tags=TextMap(HEADERS_MOST))
CHECKSUM = struct(Checksum, algorithm=TEXT, type=TEXT, value=TEXT)
WANTED_PARTS = ListOf(struct(WantedPart, number=NUMBER, etag=TEXT), PARTS_MOST)
BUCKET = struct(BucketInfo, name=TEXT, region=TEXT, made_ns=INTEGER, owner=INTEGER, versioning=INTEGER)
OBJECT = struct(
    ObjectInfo, key=BYTES, size=INTEGER, etag=TEXT, modified_ns=INTEGER, version=OptionalOf(TEXT), is_latest=BOOLEAN,
    headers=TextMap(HEADERS_MOST), tags_count=INTEGER, checksums=BLOB, parts_count=INTEGER, owner=INTEGER,
)  # fmt: skip
DIRECTORY = struct(Directory, made=BOOLEAN)
STORED = struct(
    Stored, etag=TEXT, version=OptionalOf(TEXT), size=INTEGER, modified_ns=INTEGER, checksum=OptionalOf(CHECKSUM)
)  # fmt: skip
PART = struct(PartInfo, number=INTEGER, size=INTEGER, etag=TEXT, modified_ns=INTEGER, checksum=TEXT)
PART_FACTS = ListOf(
    struct(PartSummary, number=INTEGER, size=INTEGER, etag=TEXT, crc64nvme=UNSIGNED, checksum=TEXT), PARTS_MOST
)
LISTED = TupleOf(BYTES, INTEGER, TEXT, INTEGER, INTEGER, OptionalOf(BLOB))
PAGE = struct(
    Page, groups=ListOf(TupleOf(BYTES, ListOf(LISTED, PAGE_MOST)), PAGE_MOST), prefixes=ListOf(BYTES, PAGE_MOST),
    next=OptionalOf(BYTES),
)  # fmt: skip
OPENED = TupleOf(OBJECT, INTEGER, INTEGER)
"""The object, the offset of the first byte of the content, and its length."""


@dataclass(frozen=True)
class Method:
    """The schemas of one method."""

    arguments: dict[str, Schema]
    result: Schema = NOTHING
    changes: bool = False
    """Whether it changes the tree, so that a request with it needs an idempotency key."""

    def encode(self, *values: Any) -> tuple[Any, ...]:
        """Encode the values of all arguments, in their order."""
        return tuple(schema.encode(value) for schema, value in zip(self.arguments.values(), values, strict=True))

    def decode(self, name: str, encoded: tuple[Any, ...]) -> list[Any]:
        """Decode and validate a client's arguments. *name*: the method's, for the error. Raises `SchemaError`."""
        return decode_fields(self.arguments, encoded, name)


def _method(result: Schema = NOTHING, changes: bool = False, **arguments: Schema) -> Method:
    return Method(arguments, result, changes)


_OBJECT_ARGUMENTS: dict[str, Any] = {"bucket": TEXT, "key": BYTES}

METHODS: dict[str, Method] = {
    "buckets": _method(TupleOf(ListOf(BUCKET, PAGE_MOST), OptionalOf(TEXT)), after=TEXT),
    "bucket": _method(BUCKET, name=TEXT),
    "make_bucket": _method(changes=True, name=TEXT),
    "drop_bucket": _method(changes=True, name=TEXT),
    "look": _method(TaggedUnion((ObjectInfo, OBJECT), (Directory, DIRECTORY)), **_OBJECT_ARGUMENTS),
    "page": _method(PAGE, bucket=TEXT, prefix=BYTES, delimiter=BYTES, after=BYTES),
    "copy": _method(
        STORED, changes=True, **_OBJECT_ARGUMENTS, to_bucket=TEXT, to_key=BYTES, meta=OptionalOf(META),
        conditions=CONDITIONS,
    ),
    "move": _method(changes=True, **_OBJECT_ARGUMENTS, to_bucket=TEXT, to_key=BYTES),
    "remove": _method(
        ListOf(OptionalOf(_Error()), KEYS_MOST), changes=True, bucket=TEXT,
        keys=ListOf(BYTES, KEYS_MOST), must_exist=BOOLEAN,
    ),
    "rename": _method(changes=True, bucket=TEXT, path=BYTES, to_path=BYTES, directory=BOOLEAN),
    "mkdir": _method(changes=True, bucket=TEXT, path=BYTES),
    "rmdir": _method(changes=True, bucket=TEXT, path=BYTES),
    "begin_upload": _method(TEXT, changes=True, **_OBJECT_ARGUMENTS, meta=META),
    "copy_part": _method(
        PART, changes=True, **_OBJECT_ARGUMENTS, upload=TEXT, number=NUMBER, source=BYTES, wanted=RANGE, etag=TEXT
    ),
    "tags": _method(TextMap(HEADERS_MOST), **_OBJECT_ARGUMENTS),
    "parts": _method(PART_FACTS, **_OBJECT_ARGUMENTS),
    "complete_upload": _method(
        STORED, changes=True, **_OBJECT_ARGUMENTS, upload=TEXT, parts=WANTED_PARTS, conditions=CONDITIONS
    ),
    "abort_upload": _method(changes=True, **_OBJECT_ARGUMENTS, upload=TEXT),
}  # fmt: skip
"""What `calls` carries."""

OPEN_METHOD = _method(OPENED, **_OBJECT_ARGUMENTS, wanted=OptionalOf(RANGE), conditions=CONDITIONS)
"""The one method that a request to `read` calls: `open`."""

WRITE_METHODS: dict[str, Method] = {
    "put": _method(STORED, changes=True, **_OBJECT_ARGUMENTS, size=SIZE, meta=META, conditions=CONDITIONS),
    "put_part": _method(PART, changes=True, **_OBJECT_ARGUMENTS, upload=TEXT, number=NUMBER, size=SIZE),
}
"""The methods that a request to `write` calls. `size` is the number of bytes in the body."""
