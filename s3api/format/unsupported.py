"""Headers of S3 features that are not implemented. Values that request the default are accepted, others are rejected.

Each rejection names the feature; docs/s3.md lists them. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from s3api.errors import S3Error
from s3api.format.checksums import UNSUPPORTED_ALGORITHMS

_UNSUPPORTED_HEADERS = {
    "x-amz-grant-full-control": "a grant",
    "x-amz-grant-read": "a grant",
    "x-amz-grant-read-acp": "a grant",
    "x-amz-grant-write": "a grant",
    "x-amz-grant-write-acp": "a grant",
    "x-amz-object-lock-mode": "Object Lock",
    "x-amz-object-lock-retain-until-date": "Object Lock",
    "x-amz-server-side-encryption-aws-kms-key-id": "SSE-KMS",
    "x-amz-server-side-encryption-context": "SSE-KMS",
    "x-amz-server-side-encryption-customer-algorithm": "SSE-C",
    "x-amz-server-side-encryption-customer-key": "SSE-C",
    "x-amz-server-side-encryption-customer-key-md5": "SSE-C",
    "x-amz-copy-source-server-side-encryption-customer-algorithm": "SSE-C",
    "x-amz-copy-source-server-side-encryption-customer-key": "SSE-C",
    "x-amz-website-redirect-location": "a website redirect",
    "x-amz-write-offset-bytes": "appending",
    "x-amz-mfa": "MFA delete",
    **{f"x-amz-checksum-{name.lower()}": "another checksum" for name in UNSUPPORTED_ALGORITHMS},
}
_DEFAULTS = {
    "x-amz-acl": ("another ACL", frozenset({"", "private", "bucket-owner-full-control", "bucket-owner-read"})),
    "x-amz-object-lock-legal-hold": ("Object Lock", frozenset({"off"})),
    "x-amz-bucket-object-lock-enabled": ("Object Lock", frozenset({"false"})),
    "x-amz-object-ownership": ("Object Ownership", frozenset({"bucketownerenforced"})),
    "x-amz-server-side-encryption-bucket-key-enabled": ("SSE-KMS", frozenset({"false"})),
}
_CANNED_ACLS = frozenset(
    {"public-read", "public-read-write", "authenticated-read", "aws-exec-read", "log-delivery-write"}
)
_STORAGE_CLASSES = frozenset(
    {
        "DEEP_ARCHIVE", "EXPRESS_ONEZONE", "FSX_ONTAP", "FSX_OPENZFS", "GLACIER", "GLACIER_IR", "INTELLIGENT_TIERING",
        "ONEZONE_IA", "OUTPOSTS", "REDUCED_REDUNDANCY", "SNOW", "STANDARD_IA",
    }
)  # fmt: skip


def check_headers(headers: Mapping[str, str], sealed: bool) -> None:
    """Check that the headers request no unimplemented feature. *sealed*: whether blocks are encrypted.

    Raises S3Error NotImplemented, which names the feature, or for an unknown value the error that S3 returns."""
    for name, value in headers.items():
        if not name.startswith("x-amz-"):
            continue
        if name in _UNSUPPORTED_HEADERS:
            raise S3Error(
                "NotImplemented",
                f"{name} asks for {_UNSUPPORTED_HEADERS[name]}, which is not implemented.",
                Header=name,
            )
        if name in _DEFAULTS and value.lower() not in _DEFAULTS[name][1]:
            _refuse_value(name, value)
    storage = headers.get("x-amz-storage-class")
    if storage is not None and storage != "STANDARD":
        if storage in _STORAGE_CLASSES:
            raise S3Error("NotImplemented", f"The storage class {storage} is not implemented.", Header=storage)
        raise S3Error("InvalidStorageClass", StorageClassRequested=storage)
    encryption = headers.get("x-amz-server-side-encryption")
    if encryption is not None:
        check_encryption(encryption, sealed)


def _refuse_value(name: str, value: str) -> None:
    if name == "x-amz-acl" and value.lower() not in _CANNED_ACLS:
        raise S3Error("InvalidArgument", ArgumentName=name, ArgumentValue=value)
    raise S3Error("NotImplemented", f"{name} asks for {_DEFAULTS[name][0]}, which is not implemented.", Header=name)


def check_encryption(algorithm: str, sealed: bool) -> None:
    """Raise S3Error unless *algorithm* is AES256, which sealing is, and the site seals its blocks."""
    if algorithm.startswith("aws:") or (algorithm == "AES256" and not sealed):
        raise S3Error("NotImplemented", f"Encryption by {algorithm} is not implemented.", Header=algorithm)
    if algorithm != "AES256":
        raise S3Error("InvalidEncryptionAlgorithmError", ArgumentName="x-amz-server-side-encryption")
