"""Which actions of an access policy each operation needs. Pure.

Source: the S3 API reference, section "Permissions" of each operation, and the S3 user guide, "Required permissions for
Amazon S3 API operations".
"""

from __future__ import annotations

from typing import NamedTuple


class Permission(NamedTuple):
    """The actions that an operation needs, all of them, on the bucket or object that the request names."""

    actions: tuple[str, ...]
    version_actions: tuple[str, ...] = ()
    """The actions if the request names a version."""


def _actions(*names: str, version: tuple[str, ...] = ()) -> Permission:
    return Permission(tuple(f"s3:{name}" for name in names), tuple(f"s3:{name}" for name in version))


_GET = _actions("GetObject", version=("GetObjectVersion",))
_PUT = _actions("PutObject")

PERMISSIONS: dict[str, Permission | None] = {
    "AbortMultipartUpload": _actions("AbortMultipartUpload"),
    "CompleteMultipartUpload": _PUT,
    "CopyObject": _PUT,  # and those of the source
    "CreateBucket": None,  # there is no bucket yet
    "CreateMultipartUpload": _PUT,
    "DeleteBucket": _actions("DeleteBucket"),
    "DeleteBucketCors": _actions("PutBucketCORS"),
    "DeleteBucketEncryption": _actions("PutEncryptionConfiguration"),
    "DeleteBucketLifecycleConfiguration": _actions("PutLifecycleConfiguration"),
    "DeleteBucketPolicy": _actions("DeleteBucketPolicy"),
    "DeleteBucketReplication": _actions("PutReplicationConfiguration"),
    "DeleteBucketTagging": _actions("PutBucketTagging"),
    "DeleteBucketWebsite": _actions("DeleteBucketWebsite"),
    "DeleteObject": _actions("DeleteObject", version=("DeleteObjectVersion",)),
    "DeleteObjectTagging": _actions("DeleteObjectTagging", version=("DeleteObjectVersionTagging",)),
    "DeleteObjects": None,  # each key is checked on its own
    "DeletePublicAccessBlock": _actions("PutBucketPublicAccessBlock"),
    "GetBucketAccelerateConfiguration": _actions("GetAccelerateConfiguration"),
    "GetBucketAcl": _actions("GetBucketAcl"),
    "GetBucketCors": _actions("GetBucketCORS"),
    "GetBucketEncryption": _actions("GetEncryptionConfiguration"),
    "GetBucketLifecycleConfiguration": _actions("GetLifecycleConfiguration"),
    "GetBucketLocation": _actions("GetBucketLocation"),
    "GetBucketLogging": _actions("GetBucketLogging"),
    "GetBucketNotificationConfiguration": _actions("GetBucketNotification"),
    "GetBucketOwnershipControls": _actions("GetBucketOwnershipControls"),
    "GetBucketPolicy": _actions("GetBucketPolicy"),
    "GetBucketPolicyStatus": _actions("GetBucketPolicyStatus"),
    "GetBucketReplication": _actions("GetReplicationConfiguration"),
    "GetBucketRequestPayment": _actions("GetBucketRequestPayment"),
    "GetBucketTagging": _actions("GetBucketTagging"),
    "GetBucketVersioning": _actions("GetBucketVersioning"),
    "GetBucketWebsite": _actions("GetBucketWebsite"),
    "GetObject": _GET,
    "GetObjectAcl": _actions("GetObjectAcl", version=("GetObjectVersionAcl",)),
    "GetObjectAttributes": _actions(
        "GetObject", "GetObjectAttributes", version=("GetObjectVersion", "GetObjectVersionAttributes")
    ),
    "GetObjectLegalHold": _actions("GetObjectLegalHold"),
    "GetObjectLockConfiguration": _actions("GetBucketObjectLockConfiguration"),
    "GetObjectRetention": _actions("GetObjectRetention"),
    "GetObjectTagging": _actions("GetObjectTagging", version=("GetObjectVersionTagging",)),
    "GetPublicAccessBlock": _actions("GetBucketPublicAccessBlock"),
    "HeadBucket": _actions("ListBucket"),
    "HeadObject": _GET,
    "ListBucketAnalyticsConfigurations": _actions("GetAnalyticsConfiguration"),
    "ListBucketIntelligentTieringConfigurations": _actions("GetIntelligentTieringConfiguration"),
    "ListBucketInventoryConfigurations": _actions("GetInventoryConfiguration"),
    "ListBucketMetricsConfigurations": _actions("GetMetricsConfiguration"),
    "ListBuckets": None,  # it names no bucket
    "ListMultipartUploads": _actions("ListBucketMultipartUploads"),
    "ListObjectVersions": _actions("ListBucketVersions"),
    "ListObjects": _actions("ListBucket"),
    "ListObjectsV2": _actions("ListBucket"),
    "ListParts": _actions("ListMultipartUploadParts"),
    "PutBucketAccelerateConfiguration": _actions("PutAccelerateConfiguration"),
    "PutBucketAcl": _actions("PutBucketAcl"),
    "PutBucketCors": _actions("PutBucketCORS"),
    "PutBucketEncryption": _actions("PutEncryptionConfiguration"),
    "PutBucketLogging": _actions("PutBucketLogging"),
    "PutBucketNotificationConfiguration": _actions("PutBucketNotification"),
    "PutBucketOwnershipControls": _actions("PutBucketOwnershipControls"),
    "PutBucketPolicy": _actions("PutBucketPolicy"),
    "PutBucketRequestPayment": _actions("PutBucketRequestPayment"),
    "PutBucketTagging": _actions("PutBucketTagging"),
    "PutBucketVersioning": _actions("PutBucketVersioning"),
    "PutObject": _PUT,
    "PutObjectAcl": _actions("PutObjectAcl", version=("PutObjectVersionAcl",)),
    "PutObjectTagging": _actions("PutObjectTagging", version=("PutObjectVersionTagging",)),
    "PutPublicAccessBlock": _actions("PutBucketPublicAccessBlock"),
    "UploadPart": _PUT,
    "UploadPartCopy": _PUT,  # and those of the source
}
"""By S3's name of the operation. None: the operation is not checked here, and anonymous requests are denied."""

PUT_TAGS = "s3:PutObjectTagging"
"""What an operation needs in addition if it stores tags with a new object."""
SOURCE = Permission(("s3:GetObject",), ("s3:GetObjectVersion",))
"""What a copy needs on its source."""
SOURCE_TAGS = Permission(("s3:GetObjectTagging",), ("s3:GetObjectVersionTagging",))
"""What a copy needs in addition if it copies the tags."""
AUTHORIZED_LATER = frozenset({"PutObjectTagging"})
"""Operations that are authorized once their body was read."""
COPIES = frozenset({"CopyObject", "UploadPartCopy"})
EACH_KEY = frozenset({"DeleteObjects"})
"""Operations that check each of the keys in their body, also for anonymous requests."""
