"""The actions of S3 that policies may name, and whether they are about buckets or objects. Pure.

Source: the service authorization reference, "Actions, resources, and condition keys for Amazon S3".
"""

from __future__ import annotations

from enum import Enum
from functools import lru_cache

from gateway.access.patterns import Pattern


class ActionKind(Enum):
    """What an action is about."""

    SERVICE = "service"
    BUCKET = "bucket"
    OBJECT = "object"


_OBJECT = """
AbortMultipartUpload BypassGovernanceRetention DeleteObject DeleteObjectTagging DeleteObjectVersion
DeleteObjectVersionTagging GetObject GetObjectAcl GetObjectAttributes GetObjectLegalHold GetObjectRetention
GetObjectTagging GetObjectTorrent GetObjectVersion GetObjectVersionAcl GetObjectVersionAttributes
GetObjectVersionForReplication GetObjectVersionTagging GetObjectVersionTorrent ListMultipartUploadParts
ObjectOwnerOverrideToBucketOwner PutObject PutObjectAcl PutObjectLegalHold PutObjectRetention PutObjectTagging
PutObjectVersionAcl PutObjectVersionTagging ReplicateDelete ReplicateObject ReplicateTags RestoreObject
"""
_BUCKET = """
CreateBucket DeleteBucket DeleteBucketPolicy DeleteBucketWebsite GetAccelerateConfiguration
GetAnalyticsConfiguration GetBucketAcl GetBucketCORS GetBucketLocation GetBucketLogging GetBucketNotification
GetBucketObjectLockConfiguration GetBucketOwnershipControls GetBucketPolicy GetBucketPolicyStatus
GetBucketPublicAccessBlock GetBucketRequestPayment GetBucketTagging GetBucketVersioning GetBucketWebsite
GetEncryptionConfiguration GetIntelligentTieringConfiguration GetInventoryConfiguration GetLifecycleConfiguration
GetMetricsConfiguration GetReplicationConfiguration ListBucket ListBucketMultipartUploads ListBucketVersions
PutAccelerateConfiguration PutAnalyticsConfiguration PutBucketAcl PutBucketCORS PutBucketLogging
PutBucketNotification PutBucketObjectLockConfiguration PutBucketOwnershipControls PutBucketPolicy
PutBucketPublicAccessBlock PutBucketRequestPayment PutBucketTagging PutBucketVersioning PutBucketWebsite
PutEncryptionConfiguration PutIntelligentTieringConfiguration PutInventoryConfiguration PutLifecycleConfiguration
PutMetricsConfiguration PutReplicationConfiguration
"""
_SERVICE = "ListAllMyBuckets"

ACTIONS: dict[str, ActionKind] = {
    f"s3:{name}": kind
    for names, kind in ((_OBJECT, ActionKind.OBJECT), (_BUCKET, ActionKind.BUCKET), (_SERVICE, ActionKind.SERVICE))
    for name in names.split()
}
"""Each action with its kind."""


@lru_cache(1024)
def actions_matched(text: str) -> frozenset[str]:
    """Return the actions that the pattern *text*, in lower case, matches."""
    pattern = Pattern(text, variables=False)
    return frozenset(action for action in ACTIONS if pattern.matches(action.lower()))
