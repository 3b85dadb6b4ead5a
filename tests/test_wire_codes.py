"""The wire codes of errors: what processes and clients of another version understand, so they never change."""

from __future__ import annotations

import pytest

from gateway import errors

CODES = [
    "AccessDenied",
    "AccessKeyExists",
    "BadChecksum",
    "BadDigest",
    "BucketExists",
    "BucketNotEmpty",
    "BucketOwned",
    "Busy",
    "CommitterGone",
    "Cycle",
    "Damaged",
    "DeleteMarker",
    "DirectoryNotEmpty",
    "DiskFull",
    "EntityTooLarge",
    "EntityTooSmall",
    "EntrepotError",
    "Exists",
    "IncompleteBody",
    "Invalid",
    "InvalidArgument",
    "InvalidBucketName",
    "InvalidKey",
    "InvalidPart",
    "InvalidPartOrder",
    "InvalidRange",
    "IsADirectory",
    "Misconfigured",
    "NameExists",
    "NameTooLong",
    "NoSuchAccessKey",
    "NoSuchBucket",
    "NoSuchKey",
    "NoSuchName",
    "NoSuchPart",
    "NoSuchUpload",
    "NoSuchUser",
    "NoSuchVersion",
    "NotADirectory",
    "NotEmpty",
    "NotFound",
    "NotModified",
    "NotNow",
    "PreconditionFailed",
    "QuotaExceeded",
    "Refused",
    "SessionOver",
    "SourceChanged",
    "MalformedPolicy",
    "TooDeep",
    "TooManyLinks",
    "Unavailable",
    "UserExists",
    "WrongKind",
]


def test_the_wire_codes_are_the_ones_that_older_versions_sent() -> None:
    assert set(CODES) <= set(errors.BY_WIRE_CODE), "an older version sends this code"


def test_no_two_classes_share_a_wire_code() -> None:
    classes = [
        each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, errors.EntrepotError)
    ]
    assert len(set(classes)) == len(errors.BY_WIRE_CODE)
    assert all("wire_code" in vars(each) for each in classes)


def test_a_class_without_a_wire_code_is_refused() -> None:
    with pytest.raises(TypeError, match="wire_code"):
        type("Renamed", (errors.Refused,), {})
