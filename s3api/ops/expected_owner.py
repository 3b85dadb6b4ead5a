"""The headers with which a client names the owner that it expects a bucket to have.

There are no account numbers here: the expected value is the canonical user id of `format.owners`, and any other value
is denied.
"""

from __future__ import annotations

from gateway.errors import AccessDenied
from s3api.format.owners import owner_id
from s3api.request import S3Request

EXPECTED = "x-amz-expected-bucket-owner"
EXPECTED_OF_SOURCE = "x-amz-source-expected-bucket-owner"


async def check_expected_owner(request: S3Request, header: str, bucket: str) -> None:
    """Check that *bucket* has the owner that *header* names, if the header is present.

    Raises `AccessDenied`, `NoSuchBucket`."""
    expected = request.headers.get(header)
    if expected is not None:
        info = await request.engine.head_bucket(request.caller, bucket)
        if owner_id(info.owner) != expected.strip():
            raise AccessDenied(f"{bucket} does not belong to {expected}")
