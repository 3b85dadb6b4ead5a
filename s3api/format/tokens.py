"""Continuation tokens: the position at which a page ended, with a MAC over bucket and position. Pure.

The MAC detects a modified token and a token of another bucket.
"""

from __future__ import annotations

import base64
import binascii
from hashlib import blake2b
from hmac import compare_digest

from s3api.errors import S3Error

_SEAL_BYTES = 12
_FORM = b"1"


def seal_token(key: bytes, bucket: str, position: bytes) -> str:
    """Return the token for *position* in *bucket*. *key*: the key of the MAC."""
    return base64.urlsafe_b64encode(_FORM + _seal(key, bucket, position) + position).decode()


def open_token(key: bytes, bucket: str, token: str) -> bytes:
    """Return the position in *token*. Raises S3Error InvalidArgument for a token whose MAC is invalid."""
    try:
        raw = base64.urlsafe_b64decode(token)
    except (binascii.Error, ValueError):
        raw = b""
    form, seal, position = raw[:1], raw[1 : 1 + _SEAL_BYTES], raw[1 + _SEAL_BYTES :]
    if form != _FORM or not compare_digest(seal, _seal(key, bucket, position)):
        raise S3Error(
            "InvalidArgument", "The continuation token provided is incorrect", ArgumentName="continuation-token"
        )
    return position


def _seal(key: bytes, bucket: str, position: bytes) -> bytes:
    return blake2b(
        bucket.encode() + b"/" + position, key=key[: blake2b.MAX_KEY_SIZE], digest_size=_SEAL_BYTES, person=b"s3 token"
    ).digest()
