"""The table of operations: what S3 calls each, and who answers it. The pickier row stands first."""

from __future__ import annotations

from s3api import extension
from s3api.format.request_target import BUCKET, OBJECT, SERVICE
from s3api.ops import (
    attributes,
    buckets,
    delete,
    list_versions,
    multipart,
    multipart_complete,
    put,
    subresources,
    tagging,
)
from s3api.ops import copy as copying
from s3api.ops import get as objects
from s3api.ops import list as listing
from s3api.ops.copy import SOURCE
from s3api.routing import Routes, Row

PART = ("partNumber", "uploadId")

ROWS = (
    Row("GET", SERVICE, "ListBuckets", buckets.list_buckets),
    #
    Row("PUT", BUCKET, "CreateBucket", buckets.create_bucket),
    Row("HEAD", BUCKET, "HeadBucket", buckets.head_bucket),
    Row("DELETE", BUCKET, "DeleteBucket", buckets.delete_bucket),
    Row("GET", BUCKET, "GetBucketLocation", buckets.get_location, ("location",)),
    Row("GET", BUCKET, "GetBucketVersioning", buckets.get_versioning, ("versioning",)),
    Row("PUT", BUCKET, "PutBucketVersioning", buckets.put_versioning, ("versioning",)),
    Row("GET", BUCKET, "ListMultipartUploads", multipart.list_multipart_uploads, ("uploads",)),
    Row("GET", BUCKET, "ListObjectVersions", list_versions.list_object_versions, ("versions",)),
    Row("GET", BUCKET, "ListObjectsV2", listing.list_objects_v2, ("list-type=2",)),
    Row("GET", BUCKET, "ListObjects", listing.list_objects_v1),
    Row("POST", BUCKET, "DeleteObjects", delete.delete_objects, ("delete",)),
    Row("POST", BUCKET, "PostObject", subresources.post_form, signed=False),
    #
    Row("GET", BUCKET, "GetBucketAcl", subresources.get_bucket_acl, ("acl",)),
    Row("PUT", BUCKET, "PutBucketAcl", subresources.put_bucket_acl, ("acl",)),
    Row("GET", BUCKET, "GetBucketEncryption", subresources.get_bucket_encryption, ("encryption",)),
    Row("PUT", BUCKET, "PutBucketEncryption", subresources.put_bucket_encryption, ("encryption",)),
    *(
        Row("GET", BUCKET, f"Get{subresources.OPERATION[name]}", subresources.absent(code), (name,))
        for name, code in subresources.ABSENT.items()
    ),
    *(
        Row("GET", BUCKET, f"Get{subresources.OPERATION[name]}", subresources.fixed(*document), (name,))
        for name, document in subresources.FIXED.items()
    ),
    *(
        Row("PUT", BUCKET, f"Put{subresources.OPERATION[name]}", subresources.as_it_is(*document, name), (name,))
        for name, document in subresources.FIXED.items()
    ),
    *(
        Row("GET", BUCKET, f"List{subresources.OPERATION[name]}s", subresources.empty_list(document), (name,))
        for name, document in subresources.LISTS.items()
    ),
    *(
        Row("DELETE", BUCKET, f"Delete{subresources.OPERATION[name]}", subresources.nothing_to_remove, (name,))
        for name in subresources.REMOVABLE
    ),
    #
    Row("PUT", OBJECT, "UploadPartCopy", multipart.upload_part_copy, PART, SOURCE),
    Row("PUT", OBJECT, "UploadPart", multipart.upload_part, PART),
    Row("GET", OBJECT, "ListParts", multipart.list_parts, ("uploadId",)),
    Row("POST", OBJECT, "CompleteMultipartUpload", multipart_complete.complete_multipart_upload, ("uploadId",)),
    Row("DELETE", OBJECT, "AbortMultipartUpload", multipart.abort_multipart_upload, ("uploadId",)),
    Row("POST", OBJECT, "CreateMultipartUpload", multipart.create_multipart_upload, ("uploads",)),
    Row("GET", OBJECT, "GetObjectTagging", tagging.get_object_tagging, ("tagging",)),
    Row("PUT", OBJECT, "PutObjectTagging", tagging.put_object_tagging, ("tagging",)),
    Row("DELETE", OBJECT, "DeleteObjectTagging", tagging.delete_object_tagging, ("tagging",)),
    Row("GET", OBJECT, "GetObjectAttributes", attributes.get_object_attributes, ("attributes",)),
    Row("GET", OBJECT, "GetObjectAcl", subresources.get_object_acl, ("acl",)),
    Row("PUT", OBJECT, "PutObjectAcl", subresources.put_object_acl, ("acl",)),
    Row("GET", OBJECT, "GetObjectLegalHold", subresources.no_object_lock, ("legal-hold",)),
    Row("GET", OBJECT, "GetObjectRetention", subresources.no_object_lock, ("retention",)),
    #
    Row("GET", OBJECT, "GetObject", objects.get_object, ("partNumber",)),
    Row("GET", OBJECT, "GetObject", objects.get_object),
    Row("HEAD", OBJECT, "HeadObject", objects.head_object, ("partNumber",)),
    Row("HEAD", OBJECT, "HeadObject", objects.head_object),
    Row("PUT", OBJECT, "CopyObject", copying.copy_object, (), SOURCE),
    Row("PUT", OBJECT, "PutObject", put.put_object),
    Row("DELETE", OBJECT, "DeleteObject", delete.delete_object),
    #
    Row("POST", OBJECT, "Unknown", extension.post),
)

ROUTES = Routes(ROWS)
