"""The error response of each error: its S3 code, HTTP status, message and XML document. Pure.

Two tables define it. `s3api.codes.CODES` has the status and S3's own sentence of each S3 code. `ERROR_TABLE` has the S3
code of each class of `gateway.errors`. An `S3Error` names its code itself.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from gateway import errors as core
from gateway.identity.signature_errors import SignatureError
from s3api.codes import CODES
from s3api.errors import S3Error
from s3api.format.dates import SECOND_NS, http_date
from s3api.format.xml_writer import XML_HEAD, escape


class ErrorRow(NamedTuple):
    """The S3 error of one class of `gateway.errors`."""

    code: str
    shows_argument: bool = False
    """Whether the error's first argument is a sentence for the client. Otherwise the message is S3's own sentence."""
    element: str = ""
    """The XML element that holds the error's first argument."""
    sentence: str = ""
    """The message, where S3's own sentence for the code would be misleading."""


ERROR_TABLE: dict[type[core.EntrepotError], ErrorRow] = {
    core.EntrepotError: ErrorRow("InternalError"),
    core.Refused: ErrorRow("InvalidRequest", shows_argument=True),
    core.NotFound: ErrorRow("NoSuchKey"),
    core.NoSuchBucket: ErrorRow("NoSuchBucket", element="BucketName"),
    core.NoSuchKey: ErrorRow("NoSuchKey", element="Key"),
    core.NoSuchVersion: ErrorRow("NoSuchVersion", element="Key"),
    core.NoSuchUpload: ErrorRow("NoSuchUpload", element="UploadId"),
    core.NoSuchUser: ErrorRow("NoSuchEntity"),
    core.NoSuchAccessKey: ErrorRow("InvalidAccessKeyId", element="AWSAccessKeyId"),
    core.NoSuchName: ErrorRow("NoSuchKey", element="Key"),
    core.Exists: ErrorRow("OperationAborted"),
    core.BucketExists: ErrorRow("BucketAlreadyExists", element="BucketName"),
    core.BucketOwned: ErrorRow("BucketAlreadyOwnedByYou", element="BucketName"),
    core.UserExists: ErrorRow("EntityAlreadyExists"),
    core.AccessKeyExists: ErrorRow("EntityAlreadyExists"),
    core.NameExists: ErrorRow("OperationAborted"),
    core.NotEmpty: ErrorRow("OperationAborted"),
    core.BucketNotEmpty: ErrorRow("BucketNotEmpty", element="BucketName"),
    core.DirectoryNotEmpty: ErrorRow("OperationAborted"),
    core.AccessDenied: ErrorRow("AccessDenied"),
    core.PreconditionFailed: ErrorRow("PreconditionFailed", element="Condition"),
    core.NotModified: ErrorRow("NotModified"),
    core.DeleteMarker: ErrorRow("NoSuchKey", element="Key"),
    core.QuotaExceeded: ErrorRow("QuotaExceeded", shows_argument=True),
    core.ReadOnlySite: ErrorRow("AccessDenied", shows_argument=True),
    core.Invalid: ErrorRow("InvalidRequest", shows_argument=True),
    core.InvalidBucketName: ErrorRow("InvalidBucketName", element="BucketName"),
    core.InvalidKey: ErrorRow("KeyTooLongError", shows_argument=True),
    core.TooDeep: ErrorRow("KeyTooLongError", shows_argument=True),
    core.InvalidPart: ErrorRow("InvalidPart", shows_argument=True),
    core.InvalidPartOrder: ErrorRow("InvalidPartOrder"),
    core.EntityTooSmall: ErrorRow("EntityTooSmall", element="PartNumber"),
    core.EntityTooLarge: ErrorRow("EntityTooLarge", element="ProposedSize"),
    core.InvalidRange: ErrorRow("InvalidRange", element="RangeRequested"),
    core.NoSuchPart: ErrorRow("InvalidPartNumber", element="PartNumberRequested"),
    core.BadDigest: ErrorRow("BadDigest"),
    core.BadChecksum: ErrorRow("BadDigest"),
    core.IncompleteBody: ErrorRow("IncompleteBody"),
    core.InvalidArgument: ErrorRow("InvalidArgument", shows_argument=True),
    core.MalformedPolicy: ErrorRow("MalformedPolicy", shows_argument=True),
    core.WrongKind: ErrorRow("InvalidRequest"),
    core.IsADirectory: ErrorRow("InvalidRequest"),
    core.NotADirectory: ErrorRow("InvalidRequest"),
    core.Cycle: ErrorRow("InvalidRequest"),
    core.TooManyLinks: ErrorRow("InvalidRequest"),
    core.NameTooLong: ErrorRow("KeyTooLongError"),
    # Its argument names backends and addresses, which belong in the log only.
    core.Unavailable: ErrorRow(
        "ServiceUnavailable",
        sentence="A storage backend that this request needs is unavailable at the moment. Please try again.",
    ),
    core.SourceChanged: ErrorRow("ServiceUnavailable", shows_argument=True),
    core.Busy: ErrorRow("SlowDown"),
    core.CommitterGone: ErrorRow(
        "ServiceUnavailable",
        sentence="The metadata journal does not answer at the moment. It is unknown whether a change was made: please "
        "check before you try again.",
    ),
    core.SessionExpired: ErrorRow(
        "ServiceUnavailable",
        sentence="The server was cut off from the metadata journal while it worked on this request. It is unknown "
        "whether a change was made: please check before you try again.",
    ),
    core.DiskFull: ErrorRow("InsufficientStorage"),
    core.Corrupted: ErrorRow(
        "InternalError",
        sentence="The stored data is damaged, and no intact copy could be read. The damage was reported.",
    ),
    core.Misconfigured: ErrorRow("InternalError"),
    core.TemporarilyRejected: ErrorRow("InternalError"),
}
"""Each class of `gateway.errors` and its S3 error. A test asserts that no class is missing."""


class Failure(NamedTuple):
    """An error as the client receives it."""

    code: str
    status: int
    message: str
    elements: dict[str, str]
    headers: str
    """Header lines, each with its CR LF."""


def translate_error(error: Exception, version_asked: bool = False) -> Failure:
    """Return the S3 error for *error*. *version_asked*: the request names a version id.

    An exception that neither table knows is a bug. The client receives InternalError without the exception's text."""
    if isinstance(error, S3Error):
        status, sentence = CODES[error.code]
        return Failure(error.code, status, error.message or sentence, error.extras, "")
    if isinstance(error, SignatureError):
        status, sentence = CODES[error.code]
        return Failure(error.code, status, str(error) or sentence, error.extra, "")
    if isinstance(error, core.DeleteMarker):
        return _delete_marker(error, version_asked)
    if isinstance(error, core.EntrepotError):
        return _from_table(error)
    status, sentence = CODES["InternalError"]
    return Failure("InternalError", status, sentence, {}, "")


def _from_table(error: core.EntrepotError) -> Failure:
    row = next(ERROR_TABLE[each] for each in type(error).__mro__ if each in ERROR_TABLE)
    code = row.code
    first = _text(error.args[0]) if error.args else ""
    headers = ""
    if isinstance(error, core.BadDigest) and len(first) == _SHA256_HEX:
        code = "XAmzContentSHA256Mismatch"
    elements = {row.element: first} if row.element and first else {}
    if isinstance(error, core.InvalidPart):
        elements |= dict(zip(("UploadId", "PartNumber", "ETag"), map(_text, error.args[1:]), strict=False))
    if isinstance(error, core.InvalidRange) and len(error.args) > 1:
        headers = f"Content-Range: bytes */{error.args[1]}\r\n"
        elements["ActualObjectSize"] = str(error.args[1])
    status, sentence = CODES[code]
    message = first if row.shows_argument and first else _specific(error) or row.sentence or sentence
    return Failure(code, status, message, elements, headers)


_SHA256_HEX = 64


def _specific(error: core.EntrepotError) -> str:
    """Return the message, for errors whose code has several sentences in S3; otherwise an empty string."""
    if isinstance(error, core.BadChecksum) and error.args:
        return f"The {error.args[0]} you specified did not match the calculated checksum."
    if isinstance(error, core.Busy) and error.args:
        return f"{CODES['SlowDown'][1]} What is full: {_text(error.args[0])}."
    return ""


def _delete_marker(error: core.DeleteMarker, version_asked: bool) -> Failure:
    """Return 404 for a key whose current version is a delete marker, and 405 for a request that names the marker's
    version id. Source: S3 user guide, "Working with delete markers"."""
    key, version, _, at_ns = (*error.args, "", "", False, 0)[:4]
    headers = f"x-amz-delete-marker: true\r\nx-amz-version-id: {version}\r\n"
    if version_asked:
        if at_ns:
            headers += f"Last-Modified: {http_date(at_ns // SECOND_NS)}\r\n"
        status, sentence = CODES["MethodNotAllowed"]
        elements = {"Method": "GET", "ResourceType": "DeleteMarker"}
        return Failure("MethodNotAllowed", status, sentence, elements, headers + "Allow: DELETE\r\n")
    status, sentence = CODES["NoSuchKey"]
    return Failure("NoSuchKey", status, sentence, {"Key": _text(key)}, headers)


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def error_xml(failure: Failure, resource: str, request_id: str, host_id: str) -> bytes:
    """Return the XML document of an error response."""
    extras = "".join(f"<{name}>{escape(value)}</{name}>" for name, value in failure.elements.items())
    return (
        f"{XML_HEAD}<Error><Code>{failure.code}</Code><Message>{escape(failure.message)}</Message>{extras}"
        f"<Resource>{escape(resource)}</Resource><RequestId>{request_id}</RequestId><HostId>{host_id}</HostId></Error>"
    ).encode()
