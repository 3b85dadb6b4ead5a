"""Which actions of S3's access policies each method of `FileApi` needs. Pure.

The file API and S3 share the policies of buckets, so a method needs what the S3 operations need that do the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from gateway.engine.types import ObjectMeta
from gateway.posix.paths import SLASH


class Need(NamedTuple):
    """An action on a bucket, or on a key in it."""

    action: str
    bucket: str
    key: bytes | None = None
    context: Mapping[str, tuple[str, ...]] = {}
    """The values of condition keys that the call has besides those of its request."""
    subtree: bool = False
    """Whether the call also changes all keys below *key*, each of which would need the action."""


Alternatives = Sequence[Sequence[Need]]
"""Lists of needs. A call is permitted if all needs of one of them are."""


def _bucket(action: str, name: str) -> Alternatives:
    return [[Need(f"s3:{action}", name)]]


def _key(action: str, bucket: str, key: bytes) -> Need:
    return Need(f"s3:{action}", bucket, key)


def _list(bucket: str, prefix: bytes, delimiter: bytes = b"") -> Need:
    context = {"s3:prefix": (prefix.decode("utf-8", "surrogateescape"),)}
    if delimiter:
        context["s3:delimiter"] = (delimiter.decode("utf-8", "surrogateescape"),)
    return Need("s3:ListBucket", bucket, context=context)


def _store(bucket: str, key: bytes, meta: ObjectMeta) -> Alternatives:
    return [[_key("PutObject", bucket, key), *([_key("PutObjectTagging", bucket, key)] if meta.tags else [])]]


def _copy(bucket: str, key: bytes, to_bucket: str, to_key: bytes, meta: ObjectMeta | None = None) -> Alternatives:
    tags = [_key("GetObjectTagging", bucket, key)] if meta is None else []
    return [[_key("GetObject", bucket, key), *tags, _key("PutObject", to_bucket, to_key)]]


def _move(bucket: str, key: bytes, to_bucket: str, to_key: bytes) -> Alternatives:
    source = [_key(action, bucket, key) for action in ("GetObject", "DeleteObject")]
    return [[*source, _key("PutObject", to_bucket, to_key)]]


def _rename(bucket: str, path: bytes, to_path: bytes, *, directory: bool) -> Alternatives:
    if not directory:
        return _move(bucket, path, bucket, to_path)
    return [[Need("s3:DeleteObject", bucket, path + SLASH, subtree=True)]]


NEEDS: dict[str, Callable[..., Alternatives]] = {
    "buckets": lambda *_, **__: [[]],
    "bucket": lambda name: _bucket("ListBucket", name),
    "make_bucket": lambda name: [[]],
    "drop_bucket": lambda name: _bucket("DeleteBucket", name),
    # A directory is seen by who may read an object of its name, or list it.
    "look": lambda bucket, key: [[_key("GetObject", bucket, key)], [_list(bucket, key)]],
    "page": lambda bucket, prefix, delimiter=b"", after=b"": [[_list(bucket, prefix, delimiter)]],
    "open": lambda bucket, key, *_, **__: [[_key("GetObject", bucket, key)]],
    "put": lambda bucket, key, body, size, meta, *_, **__: _store(bucket, key, meta),
    "copy": lambda bucket, key, to_bucket, to_key, meta=None, *_, **__: _copy(bucket, key, to_bucket, to_key, meta),
    "move": _move,
    "remove": lambda bucket, keys, **_: [[_key("DeleteObject", bucket, key) for key in keys]],
    "rename": _rename,
    "mkdir": lambda bucket, path: [[_key("PutObject", bucket, path + SLASH)]],
    "rmdir": lambda bucket, path: [[_key("DeleteObject", bucket, path + SLASH)]],
    "begin_upload": _store,
    "put_part": lambda bucket, key, *_, **__: [[_key("PutObject", bucket, key)]],
    "copy_part": lambda bucket, key, upload, number, source, *_, **__: [
        [_key("PutObject", bucket, key), _key("GetObject", bucket, source)]
    ],
    "tags": lambda bucket, key: [[_key("GetObjectTagging", bucket, key)]],
    "parts": lambda bucket, key: [[_key("GetObject", bucket, key)]],
    "complete_upload": lambda bucket, key, *_, **__: [[_key("PutObject", bucket, key)]],
    "abort_upload": lambda bucket, key, upload: [[_key("AbortMultipartUpload", bucket, key)]],
}
"""For each method, a function of its arguments. `compound` calls other methods, which are checked themselves."""


def needs_of(method: str, arguments: Sequence[Any], named: Mapping[str, Any]) -> Alternatives:
    """Return what a call needs."""
    return NEEDS[method](*arguments, **named)
