"""The errno of each error of `gateway.errors`, as `s3api` has a table of S3 codes.

Each class has a row of its own, so that a new class needs a decision; a test asserts that none is missing.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from gateway import errors
from gateway.errors import EntrepotError

ERRNO: dict[type[EntrepotError], int] = {
    errors.EntrepotError: errno.EIO,
    errors.Refused: errno.EPERM,
    errors.NotFound: errno.ENOENT,
    errors.NoSuchBucket: errno.ENOENT,
    errors.NoSuchKey: errno.ENOENT,
    errors.NoSuchVersion: errno.ENOENT,
    errors.NoSuchUpload: errno.ENOENT,
    errors.NoSuchUser: errno.EACCES,
    errors.NoSuchAccessKey: errno.EACCES,
    errors.NoSuchName: errno.ENOENT,
    errors.Exists: errno.EEXIST,
    errors.BucketExists: errno.EEXIST,
    errors.BucketOwned: errno.EEXIST,
    errors.UserExists: errno.EEXIST,
    errors.AccessKeyExists: errno.EEXIST,
    errors.NameExists: errno.EEXIST,
    errors.NotEmpty: errno.ENOTEMPTY,
    errors.BucketNotEmpty: errno.ENOTEMPTY,
    errors.DirectoryNotEmpty: errno.ENOTEMPTY,
    errors.AccessDenied: errno.EACCES,
    errors.PreconditionFailed: errno.ESTALE,
    errors.NotModified: errno.ESTALE,
    errors.DeleteMarker: errno.ENOENT,
    errors.QuotaExceeded: errno.EDQUOT,
    errors.ReadOnlySite: errno.EROFS,
    errors.Invalid: errno.EINVAL,
    errors.InvalidBucketName: errno.EINVAL,
    errors.InvalidKey: errno.ENAMETOOLONG,
    errors.TooDeep: errno.ENAMETOOLONG,
    errors.MalformedPolicy: errno.EINVAL,
    errors.InvalidPart: errno.EINVAL,
    errors.InvalidPartOrder: errno.EINVAL,
    errors.EntityTooSmall: errno.EINVAL,
    errors.EntityTooLarge: errno.EFBIG,
    errors.InvalidRange: errno.EINVAL,
    errors.NoSuchPart: errno.EINVAL,
    errors.BadDigest: errno.EIO,
    errors.BadChecksum: errno.EIO,
    errors.IncompleteBody: errno.EIO,
    errors.InvalidArgument: errno.EINVAL,
    errors.WrongKind: errno.EINVAL,
    errors.IsADirectory: errno.EISDIR,
    errors.NotADirectory: errno.ENOTDIR,
    errors.Cycle: errno.EINVAL,
    errors.TooManyLinks: errno.EMLINK,
    errors.NameTooLong: errno.ENAMETOOLONG,
    errors.Unavailable: errno.EIO,
    errors.Busy: errno.EBUSY,
    errors.SourceChanged: errno.EBUSY,
    errors.CommitterGone: errno.EIO,
    errors.SessionExpired: errno.EIO,
    errors.DiskFull: errno.ENOSPC,
    errors.Corrupted: errno.EIO,
    errors.Misconfigured: errno.EINVAL,
    errors.TemporarilyRejected: errno.EINVAL,
}

_NAMED_BY_PATH = (errors.NotFound, errors.Exists, errors.NotEmpty, errors.DeleteMarker, errors.WrongKind)
"""Errors whose arguments are a name. The path of the `OSError` contains it already."""


def errno_of(kind: type[EntrepotError]) -> int:
    """Return the errno of a class, or of its nearest ancestor with a row."""
    return next(ERRNO[each] for each in kind.__mro__ if each in ERRNO)


def os_error(error: EntrepotError, path: str) -> OSError:
    """Return *error* as the `OSError` of the operating system (`FileNotFoundError`, `PermissionError`, …) with
    *path*."""
    code = errno_of(type(error))
    message = os.strerror(code)
    named_by_path = isinstance(error, _NAMED_BY_PATH) and code != errno.EACCES
    if isinstance(error, errors.NoSuchBucket) and error.args:
        message += f" (there is no bucket {str(error.args[0])!r})"
    elif error.args and not named_by_path:
        message += f" ({type(error).__name__}: {', '.join(str(each) for each in error.args)})"
    return OSError(code, message, path)


@contextmanager
def os_errors(path: str) -> Iterator[None]:
    """Convert errors of `gateway.errors` that are raised inside into an `OSError` with *path*."""
    try:
        yield
    except EntrepotError as error:
        raise os_error(error, path) from error
