"""The engine: one class with all operations, composed of the classes of the other modules."""

from __future__ import annotations

from gateway.engine.bucket_policies import BucketPolicyOperations
from gateway.engine.copies import CopyOperations
from gateway.engine.deletes import DeleteOperations
from gateway.engine.listings import ListingOperations
from gateway.engine.posix_ops import PosixOperations
from gateway.engine.uploads import UploadOperations


class Engine(
    BucketPolicyOperations,
    CopyOperations,
    DeleteOperations,
    UploadOperations,
    ListingOperations,
    PosixOperations,
):
    """The operations that S3 and files share. Each takes the caller first, and raises `gateway.errors`. For one event
    loop."""
