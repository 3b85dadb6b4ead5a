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

Errors cross the committer's socket by class name and arguments, so a class takes the arguments that
`Exception.args` holds, all of them plain values.
"""

from __future__ import annotations


class EntrepotError(Exception):
    """The root of the tree."""


class Refused(EntrepotError):
    """The request cannot be granted as it stands. Nothing was changed."""


class NotFound(Refused):
    """Something that the request names does not exist."""


class NoSuchBucket(NotFound):
    """args: the bucket's name."""


class NoSuchKey(NotFound):
    """args: the key."""


class NoSuchVersion(NotFound):
    """args: the key, the version id as the client gave it."""


class NoSuchUpload(NotFound):
    """args: the upload id as the client gave it."""


class NoSuchUser(NotFound):
    """args: the user's name."""


class NoSuchAccessKey(NotFound):
    """args: the access key."""


class NoSuchName(NotFound):
    """A directory entry that POSIX asked for does not exist. args: the name or path."""


class Exists(Refused):
    """Something of that name exists already."""


class BucketExists(Exists):
    """The bucket exists and belongs to somebody else. args: the bucket's name."""


class BucketOwned(Exists):
    """The bucket exists and belongs to who asks. args: the bucket's name."""


class UserExists(Exists):
    """args: the user's name."""


class AccessKeyExists(Exists):
    """args: the access key."""


class NameExists(Exists):
    """args: the name or path."""


class NotEmpty(Refused):
    """Something is still inside."""


class BucketNotEmpty(NotEmpty):
    """args: the bucket's name."""


class DirectoryNotEmpty(NotEmpty):
    """args: the name or path."""


class AccessDenied(Refused):
    """Who asks may not do this. args: a sentence."""


class PreconditionFailed(Refused):
    """args: the condition that did not hold, as the client names it (`If-Match`)."""


class NotModified(Refused):
    """A conditional read whose object is as the client has it. args: the condition."""


class DeleteMarker(Refused):
    """The version asked for is a delete marker. args: the key, the version id, whether it is the current one, and to
    readers since when it stands (ns)."""


class QuotaExceeded(Refused):
    """args: a sentence."""


class Invalid(Refused):
    """The request contradicts itself or a limit. args: a sentence."""


class InvalidBucketName(Invalid):
    """args: the name."""


class InvalidKey(Invalid):
    """A key is empty or longer than 1,024 bytes of UTF-8. args: a sentence."""


class TooDeep(Invalid):
    """Directories would stand more than 1,024 levels below their bucket. args: a sentence."""


class InvalidPart(Invalid):
    """A part named on completion is absent, or its ETag or checksum differs. args: a sentence, the upload, the part's
    number and the ETag that was named."""


class InvalidPartOrder(Invalid):
    """The parts named on completion do not ascend."""


class EntityTooSmall(Invalid):
    """A part other than the last is under 5 MiB. args: part number, its size in bytes."""


class EntityTooLarge(Invalid):
    """args: the size in bytes, the greatest allowed."""


class InvalidRange(Invalid):
    """No byte of the range exists. args: the range as given, the object's size in bytes."""


class NoSuchPart(InvalidRange):
    """A read asks for a part that the object does not have. args: the part's number, the object's size in bytes."""


class BadDigest(Invalid):
    """The bytes' MD5 is not the one that was promised. args: promised, computed."""


class BadChecksum(Invalid):
    """The bytes' checksum is not the one that was promised. args: algorithm, promised, computed."""


class IncompleteBody(Invalid):
    """Fewer or more bytes came than were promised. args: promised, received."""


class InvalidArgument(Invalid):
    """args: a sentence."""


class WrongKind(Refused):
    """The name is of a kind for which the verb makes no sense."""


class IsADirectory(WrongKind):
    """args: the name or path."""


class NotADirectory(WrongKind):
    """args: the name or path."""


class Cycle(WrongKind):
    """A directory cannot move below itself. args: the name or path."""


class TooManyLinks(WrongKind):
    """args: the name or path."""


class NameTooLong(WrongKind):
    """args: the name or path."""


class Unavailable(EntrepotError):
    """Nothing is wrong with the request: try again."""


class Busy(Unavailable):
    """A queue is full. args: which."""


class CommitterGone(Unavailable):
    """Nobody commits at the moment. args: a sentence."""


class SourceChanged(Unavailable):
    """The source of a copy changed each time between being read and being copied. args: a sentence."""


class SessionOver(Unavailable):
    """The session ended, so its commits are refused. args: the session's id."""


class DiskFull(EntrepotError):
    """The journal's disk has only its reserve left, which deletions alone may use. args: a sentence."""


class Damaged(EntrepotError):
    """What is stored is not what was written. args: a sentence."""


class Misconfigured(EntrepotError):
    """The config, a key file or the site's directory cannot be used as it is. args: a sentence."""


class NotNow(Misconfigured):
    """The config cannot be taken over as the world is now; it may be later, though nobody edits it. args: a
    sentence."""


def _tree(root: type[EntrepotError]) -> dict[str, type[EntrepotError]]:
    found = {root.__name__: root}
    for child in root.__subclasses__():
        found |= _tree(child)
    return found


BY_NAME: dict[str, type[EntrepotError]] = _tree(EntrepotError)
"""Every class of the tree by its name: how an error is found again on the other side of the socket."""
