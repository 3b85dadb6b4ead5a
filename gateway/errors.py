"""Every error that the core raises, as one hierarchy. It knows neither HTTP nor errno: `s3api` and `gateway/posix` each
map it by a table of their own.

    EntrepotError
    ├── Refused               the request cannot be granted in this state; nothing was changed
    │   ├── NotFound          NoSuchBucket NoSuchKey NoSuchVersion NoSuchUpload NoSuchUser NoSuchAccessKey
    │   │                     NoSuchName
    │   ├── Exists            BucketExists BucketOwned UserExists AccessKeyExists NameExists
    │   ├── NotEmpty          BucketNotEmpty DirectoryNotEmpty
    │   ├── AccessDenied
    │   ├── PreconditionFailed  NotModified
    │   ├── DeleteMarker      the requested version is a delete marker
    │   ├── QuotaExceeded
    │   ├── Invalid           InvalidBucketName InvalidKey InvalidPart InvalidPartOrder EntityTooSmall
    │   │                     EntityTooLarge InvalidRange NoSuchPart BadDigest BadChecksum IncompleteBody
    │   │                     InvalidArgument TooDeep MalformedPolicy
    │   ├── ReadOnlySite      the site is the rehearsal of a restore
    │   └── WrongKind         IsADirectory NotADirectory Cycle TooManyLinks NameTooLong
    ├── Unavailable           the request is valid; the client may try again
    │   ├── Busy              a queue is full
    │   ├── CommitterGone     no committer runs at the moment
    │   ├── SourceChanged     a copy's source changes faster than it is copied
    │   └── SessionExpired    the session's lease ended; its commits are refused
    ├── DiskFull              only deletions are accepted
    ├── Corrupted             stored bytes or the journal differ from what was written
    └── Misconfigured         the config, a key file or the site's directory cannot be used
        └── TemporarilyRejected  the config cannot be adopted now; a later try may succeed

The committer's socket and HTTP carry an error as its wire code and its arguments. So a class is constructed from
`Exception.args`, and all arguments are plain values.
"""

from __future__ import annotations

from typing import Any, ClassVar


class EntrepotError(Exception):
    """The root of the hierarchy.

    `wire_code` names the class between processes, over HTTP and in JSON. A code never changes, so a class can be
    renamed. Each subclass has to give its own: `class NoSuchKey(NotFound, wire_code="NoSuchKey")`."""

    wire_code: ClassVar[str] = "EntrepotError"

    def __init_subclass__(cls, *, wire_code: str, **others: Any) -> None:
        super().__init_subclass__(**others)
        cls.wire_code = wire_code


class Refused(EntrepotError, wire_code="Refused"):
    """The request cannot be granted in the present state. Nothing was changed."""


class NotFound(Refused, wire_code="NotFound"):
    """Something that the request names does not exist."""


class NoSuchBucket(NotFound, wire_code="NoSuchBucket"):
    """args: the bucket's name."""


class NoSuchKey(NotFound, wire_code="NoSuchKey"):
    """args: the key."""


class NoSuchVersion(NotFound, wire_code="NoSuchVersion"):
    """args: the key, the version id as the client gave it."""


class NoSuchUpload(NotFound, wire_code="NoSuchUpload"):
    """args: the upload id as the client gave it."""


class NoSuchUser(NotFound, wire_code="NoSuchUser"):
    """args: the user's name."""


class NoSuchAccessKey(NotFound, wire_code="NoSuchAccessKey"):
    """args: the access key."""


class NoSuchName(NotFound, wire_code="NoSuchName"):
    """A directory entry that a POSIX call names does not exist. args: the name or path."""


class Exists(Refused, wire_code="Exists"):
    """Something of that name exists already."""


class BucketExists(Exists, wire_code="BucketExists"):
    """The bucket exists and belongs to another user. args: the bucket's name."""


class BucketOwned(Exists, wire_code="BucketOwned"):
    """The bucket exists and belongs to the caller. args: the bucket's name."""


class UserExists(Exists, wire_code="UserExists"):
    """args: the user's name."""


class AccessKeyExists(Exists, wire_code="AccessKeyExists"):
    """args: the access key."""


class NameExists(Exists, wire_code="NameExists"):
    """args: the name or path."""


class NotEmpty(Refused, wire_code="NotEmpty"):
    """The bucket or directory still contains entries."""


class BucketNotEmpty(NotEmpty, wire_code="BucketNotEmpty"):
    """args: the bucket's name."""


class DirectoryNotEmpty(NotEmpty, wire_code="DirectoryNotEmpty"):
    """args: the name or path."""


class AccessDenied(Refused, wire_code="AccessDenied"):
    """The caller lacks the permission. args: a sentence."""


class PreconditionFailed(Refused, wire_code="PreconditionFailed"):
    """args: the condition that did not hold, as the client names it (`If-Match`)."""


class NotModified(Refused, wire_code="NotModified"):
    """A conditional read: the object is the one that the client already has. args: the condition."""


class DeleteMarker(Refused, wire_code="DeleteMarker"):
    """The requested version is a delete marker. args: the key, the version id, whether it is the current version, and
    the time since which readers see it (ns)."""


class QuotaExceeded(Refused, wire_code="QuotaExceeded"):
    """args: a sentence."""


class Invalid(Refused, wire_code="Invalid"):
    """The request contradicts itself or a limit. args: a sentence."""


class InvalidBucketName(Invalid, wire_code="InvalidBucketName"):
    """args: the name."""


class InvalidKey(Invalid, wire_code="InvalidKey"):
    """A key is empty or longer than 1,024 bytes of UTF-8. args: a sentence."""


class TooDeep(Invalid, wire_code="TooDeep"):
    """A directory would lie more than 1,024 levels below its bucket. args: a sentence."""


class InvalidPart(Invalid, wire_code="InvalidPart"):
    """A part named on completion is absent, or its ETag or checksum differs. args: a sentence, the upload, the part's
    number and the ETag that was named."""


class InvalidPartOrder(Invalid, wire_code="InvalidPartOrder"):
    """The parts named on completion do not ascend."""


class EntityTooSmall(Invalid, wire_code="EntityTooSmall"):
    """A part other than the last is under 5 MiB. args: part number, its size in bytes."""


class EntityTooLarge(Invalid, wire_code="EntityTooLarge"):
    """args: the size in bytes, the greatest allowed."""


class InvalidRange(Invalid, wire_code="InvalidRange"):
    """No byte of the range exists. args: the range as given, the object's size in bytes."""


class NoSuchPart(InvalidRange, wire_code="NoSuchPart"):
    """A read asks for a part that the object does not have. args: the part's number, the object's size in bytes."""


class BadDigest(Invalid, wire_code="BadDigest"):
    """The MD5 of the body differs from the one that the client declared. args: declared, computed."""


class BadChecksum(Invalid, wire_code="BadChecksum"):
    """The checksum of the body differs from the one that the client declared. args: algorithm, declared, computed."""


class IncompleteBody(Invalid, wire_code="IncompleteBody"):
    """The body has fewer or more bytes than the client declared. args: declared, received."""


class MalformedPolicy(Invalid, wire_code="MalformedPolicy"):
    """args: a sentence that says what is wrong with an access policy, and where."""


class InvalidArgument(Invalid, wire_code="InvalidArgument"):
    """args: a sentence."""


class ReadOnlySite(Refused, wire_code="ReadOnlySite"):
    """The site is the rehearsal of a restore, and changes nothing. args: a sentence."""


class WrongKind(Refused, wire_code="WrongKind"):
    """The operation does not apply to an entry of this kind."""


class IsADirectory(WrongKind, wire_code="IsADirectory"):
    """args: the name or path."""


class NotADirectory(WrongKind, wire_code="NotADirectory"):
    """args: the name or path."""


class Cycle(WrongKind, wire_code="Cycle"):
    """A directory cannot be moved below itself. args: the name or path."""


class TooManyLinks(WrongKind, wire_code="TooManyLinks"):
    """args: the name or path."""


class NameTooLong(WrongKind, wire_code="NameTooLong"):
    """args: the name or path."""


class Unavailable(EntrepotError, wire_code="Unavailable"):
    """The request is valid but cannot be served now. The client may try again."""


class Busy(Unavailable, wire_code="Busy"):
    """It cannot be done now, and was not done; a later try may succeed. args: what is busy, such as a full queue."""


class CommitterGone(Unavailable, wire_code="CommitterGone"):
    """No committer runs at the moment. args: a sentence."""


class SourceChanged(Unavailable, wire_code="SourceChanged"):
    """The source of a copy changed each time between being read and being copied. args: a sentence."""


class SessionExpired(Unavailable, wire_code="SessionOver"):
    """The session ended, so its commits are refused. args: the session's id."""


class DiskFull(EntrepotError, wire_code="DiskFull"):
    """Only the reserve of the journal's disk is left, and only deletions may use it. args: a sentence."""


class Corrupted(EntrepotError, wire_code="Damaged"):
    """Stored bytes or the journal differ from what was written. args: a sentence."""


class Misconfigured(EntrepotError, wire_code="Misconfigured"):
    """The config, a key file or the site's directory cannot be used as it is. args: a sentence."""


class TemporarilyRejected(Misconfigured, wire_code="NotNow"):
    """The config cannot be adopted at present, but a later try may succeed without an edit. args: a sentence."""


def _by_wire_code(root: type[EntrepotError]) -> dict[str, type[EntrepotError]]:
    found = {root.wire_code: root}
    for child in root.__subclasses__():
        found |= _by_wire_code(child)
    return found


BY_WIRE_CODE: dict[str, type[EntrepotError]] = _by_wire_code(EntrepotError)
"""Every class of this module by its wire code: how the receiver of an error finds its class."""
