"""Why a signature was refused. `code` is S3's error code (S3 API reference, "Error responses"). Nothing here knows
HTTP.

SignatureError
├── AccessDeniedError            an expired request, no signature at all, or an unsigned header
├── AuthorizationHeaderMalformed with the region of this endpoint
├── AuthorizationQueryParametersError
├── InvalidAccessKeyId
├── SignatureDoesNotMatch        with the string to sign as computed here
├── RequestTimeTooSkewed
├── InvalidToken
├── InvalidRequest
├── InvalidArgumentError
├── IncompleteBodyError
└── MalformedTrailerError
"""

from __future__ import annotations

from typing import ClassVar


class SignatureError(Exception):
    """args: a sentence. `extra`: further elements of S3's error document."""

    code: ClassVar[str] = "AccessDenied"

    def __init__(self, message: str, **extra: str) -> None:
        super().__init__(_utf8(message))
        self.extra = {name: _utf8(value) for name, value in extra.items()}


def _utf8(text: str) -> str:
    """Return text, which may quote the request, as valid Unicode: bytes that were not UTF-8 become U+FFFD."""
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


class AccessDeniedError(SignatureError):
    code = "AccessDenied"


class AuthorizationHeaderMalformed(SignatureError):
    code = "AuthorizationHeaderMalformed"
    prefix: ClassVar[str] = "The authorization header is malformed"


class AuthorizationQueryParametersError(SignatureError):
    code = "AuthorizationQueryParametersError"
    prefix: ClassVar[str] = "Error parsing the X-Amz-Credential parameter"


class InvalidAccessKeyId(SignatureError):
    code = "InvalidAccessKeyId"


class SignatureDoesNotMatch(SignatureError):
    code = "SignatureDoesNotMatch"


class RequestTimeTooSkewed(SignatureError):
    code = "RequestTimeTooSkewed"


class InvalidToken(SignatureError):
    code = "InvalidToken"


class InvalidRequest(SignatureError):
    code = "InvalidRequest"


class InvalidArgumentError(SignatureError):
    code = "InvalidArgument"


class IncompleteBodyError(SignatureError):
    code = "IncompleteBody"


class MalformedTrailerError(SignatureError):
    code = "MalformedTrailerError"
