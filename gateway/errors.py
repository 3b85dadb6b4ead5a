"""Every error that the core raises, as one tree. No HTTP and no errno in it: s3api and posix each have their table.

    EntrepotError
    ├── Refused               the request cannot be granted as it stands; nothing was changed
    │   ├── NotFound          NoSuchBucket NoSuchKey NoSuchVersion NoSuchUpload NoSuchUser NoSuchAccessKey
    │   │                     NoSuchName
    │   ├── Exists            BucketExists BucketOwned UserExists AccessKeyExists NameExists
    │   ├── NotEmpty          BucketNotEmpty DirectoryNotEmpty
    │   ├── AccessDenied
    │   ├── PreconditionFailed  NotModified
    │   ├── DeleteMarker      the name's version is a delete marker
    │   ├── QuotaExceeded
    │   ├── Invalid           InvalidBucketName InvalidKey InvalidPart InvalidPartOrder EntityTooSmall
    │   │                     EntityTooLarge InvalidRange NoSuchPart BadDigest BadChecksum IncompleteBody
    │   │                     InvalidArgument TooDeep
    │   └── WrongKind         IsADirectory NotADirectory Cycle TooManyLinks NameTooLong
    ├── Unavailable           nothing is wrong with the request; try again
    │   ├── Busy              a queue is full
    │   ├── CommitterGone     nobody commits at the moment
    │   ├── SourceChanged     a copy's source changes faster than it is copied
    │   └── SessionOver       the session's lease ended; its commits are refused
    ├── DiskFull              only deletions are taken
    ├── Damaged               stored bytes or journal are not what was written
    └── Misconfigured         the config, a key file or the site's directory cannot be used
        └── NotNow            as the world is now; it may be later

Errors cross the committer's socket and HTTP by wire code and arguments. So a class takes the arguments that
`Exception.args` holds, and all of them are plain values.
"""

from __future__ import annotations

from typing import Any, ClassVar


class EntrepotError(Exception):
    """The root of the tree.

    `wire_code` names the class between processes, over HTTP and in JSON. A code never changes, so a class can be
    renamed. Each subclass has to give its own: `class NoSuchKey(NotFound, wire_code="NoSuchKey")`."""

    wire_code: ClassVar[str] = "EntrepotError"

    def __init_subclass__(cls, *, wire_code: str, **others: Any) -> None:
        super().__init_subclass__(**others)
        cls.wire_code = wire_code


class Refused(EntrepotError, wire_code="Refused"):
    """The request cannot be granted as it stands. Nothing was changed."""


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
    """A directory entry that POSIX asked for does not exist. args: the name or path."""


class Exists(Refused, wire_code="Exists"):
    """Something of that name exists already."""


class BucketExists(Exists, wire_code="BucketExists"):
    """The bucket exists and belongs to somebody else. args: the bucket's name."""


class BucketOwned(Exists, wire_code="BucketOwned"):
    """The bucket exists and belongs to who asks. args: the bucket's name."""


class UserExists(Exists, wire_code="UserExists"):
    """args: the user's name."""


class AccessKeyExists(Exists, wire_code="AccessKeyExists"):
    """args: the access key."""


class NameExists(Exists, wire_code="NameExists"):
    """args: the name or path."""


class NotEmpty(Refused, wire_code="NotEmpty"):
    """Something is still inside."""


class BucketNotEmpty(NotEmpty, wire_code="BucketNotEmpty"):
    """args: the bucket's name."""


class DirectoryNotEmpty(NotEmpty, wire_code="DirectoryNotEmpty"):
    """args: the name or path."""


class AccessDenied(Refused, wire_code="AccessDenied"):
    """Who asks may not do this. args: a sentence."""


class PreconditionFailed(Refused, wire_code="PreconditionFailed"):
    """args: the condition that did not hold, as the client names it (`If-Match`)."""


class NotModified(Refused, wire_code="NotModified"):
    """A conditional read whose object is as the client has it. args: the condition."""


class DeleteMarker(Refused, wire_code="DeleteMarker"):
    """The version asked for is a delete marker. args: the key, the version id, whether it is the current one, and to
    readers since when it stands (ns)."""


class QuotaExceeded(Refused, wire_code="QuotaExceeded"):
    """args: a sentence."""


class Invalid(Refused, wire_code="Invalid"):
    """The request contradicts itself or a limit. args: a sentence."""


class InvalidBucketName(Invalid, wire_code="InvalidBucketName"):
    """args: the name."""


class InvalidKey(Invalid, wire_code="InvalidKey"):
    """A key is empty or longer than 1,024 bytes of UTF-8. args: a sentence."""


class TooDeep(Invalid, wire_code="TooDeep"):
    """Directories would stand more than 1,024 levels below their bucket. args: a sentence."""


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
    """The bytes' MD5 is not the one that was promised. args: promised, computed."""


class BadChecksum(Invalid, wire_code="BadChecksum"):
    """The bytes' checksum is not the one that was promised. args: algorithm, promised, computed."""


class IncompleteBody(Invalid, wire_code="IncompleteBody"):
    """Fewer or more bytes came than were promised. args: promised, received."""


class InvalidArgument(Invalid, wire_code="InvalidArgument"):
    """args: a sentence."""


class WrongKind(Refused, wire_code="WrongKind"):
    """The name is of a kind for which the verb makes no sense."""


class IsADirectory(WrongKind, wire_code="IsADirectory"):
    """args: the name or path."""


class NotADirectory(WrongKind, wire_code="NotADirectory"):
    """args: the name or path."""


class Cycle(WrongKind, wire_code="Cycle"):
    """A directory cannot move below itself. args: the name or path."""


class TooManyLinks(WrongKind, wire_code="TooManyLinks"):
    """args: the name or path."""


class NameTooLong(WrongKind, wire_code="NameTooLong"):
    """args: the name or path."""


class Unavailable(EntrepotError, wire_code="Unavailable"):
    """Nothing is wrong with the request: try again."""


class Busy(Unavailable, wire_code="Busy"):
    """A queue is full. args: which."""


class CommitterGone(Unavailable, wire_code="CommitterGone"):
    """Nobody commits at the moment. args: a sentence."""


class SourceChanged(Unavailable, wire_code="SourceChanged"):
    """The source of a copy changed each time between being read and being copied. args: a sentence."""


class SessionExpired(Unavailable, wire_code="SessionOver"):
    """The session ended, so its commits are refused. args: the session's id."""


class DiskFull(EntrepotError, wire_code="DiskFull"):
    """The journal's disk has only its reserve left, which deletions alone may use. args: a sentence."""


class Corrupted(EntrepotError, wire_code="Damaged"):
    """What is stored is not what was written. args: a sentence."""


class Misconfigured(EntrepotError, wire_code="Misconfigured"):
    """The config, a key file or the site's directory cannot be used as it is. args: a sentence."""


class TemporarilyRejected(Misconfigured, wire_code="NotNow"):
    """The config cannot be taken over as the world is now; it may be later, though nobody edits it. args: a
    sentence."""


def _by_wire_code(root: type[EntrepotError]) -> dict[str, type[EntrepotError]]:
    found = {root.wire_code: root}
    for child in root.__subclasses__():
        found |= _by_wire_code(child)
    return found


BY_WIRE_CODE: dict[str, type[EntrepotError]] = _by_wire_code(EntrepotError)
"""Every class of this module by its wire code: how the receiver of an error finds its class."""
