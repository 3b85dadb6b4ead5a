"""The table of operations: what S3 calls each, and who answers it. The pickier row stands first."""

from __future__ import annotations

from s3api import (
    attributes,
    beside,
    buckets,
    completing,
    copying,
    defaults,
    deleting,
    listing,
    multipart,
    objects,
    putting,
    tagging,
    versions,
)
from s3api.copying import SOURCE
from s3api.routing import Routes, Row
from s3api.target import BUCKET, OBJECT, SERVICE

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
    Row("GET", BUCKET, "ListObjectVersions", versions.list_object_versions, ("versions",)),
    Row("GET", BUCKET, "ListObjectsV2", listing.list_objects_v2, ("list-type=2",)),
    Row("GET", BUCKET, "ListObjects", listing.list_objects_v1),
    Row("POST", BUCKET, "DeleteObjects", deleting.delete_objects, ("delete",)),
    Row("POST", BUCKET, "PostObject", defaults.post_form, signed=False),
    #
    Row("GET", BUCKET, "GetBucketAcl", defaults.get_bucket_acl, ("acl",)),
    Row("PUT", BUCKET, "PutBucketAcl", defaults.put_bucket_acl, ("acl",)),
    Row("GET", BUCKET, "GetBucketEncryption", defaults.get_bucket_encryption, ("encryption",)),
    Row("PUT", BUCKET, "PutBucketEncryption", defaults.put_bucket_encryption, ("encryption",)),
    *(
        Row("GET", BUCKET, f"Get{defaults.OPERATION[name]}", defaults.absent(code), (name,))
        for name, code in defaults.ABSENT.items()
    ),
    *(
        Row("GET", BUCKET, f"Get{defaults.OPERATION[name]}", defaults.fixed(*document), (name,))
        for name, document in defaults.FIXED.items()
    ),
    *(
        Row("PUT", BUCKET, f"Put{defaults.OPERATION[name]}", defaults.as_it_is(*document, name), (name,))
        for name, document in defaults.FIXED.items()
    ),
    *(
        Row("GET", BUCKET, f"List{defaults.OPERATION[name]}s", defaults.empty_list(document), (name,))
        for name, document in defaults.LISTS.items()
    ),
    *(
        Row("DELETE", BUCKET, f"Delete{defaults.OPERATION[name]}", defaults.nothing_to_remove, (name,))
        for name in defaults.REMOVABLE
    ),
    #
    Row("PUT", OBJECT, "UploadPartCopy", multipart.upload_part_copy, PART, SOURCE),
    Row("PUT", OBJECT, "UploadPart", multipart.upload_part, PART),
    Row("GET", OBJECT, "ListParts", multipart.list_parts, ("uploadId",)),
    Row("POST", OBJECT, "CompleteMultipartUpload", completing.complete_multipart_upload, ("uploadId",)),
    Row("DELETE", OBJECT, "AbortMultipartUpload", multipart.abort_multipart_upload, ("uploadId",)),
    Row("POST", OBJECT, "CreateMultipartUpload", multipart.create_multipart_upload, ("uploads",)),
    Row("GET", OBJECT, "GetObjectTagging", tagging.get_object_tagging, ("tagging",)),
    Row("PUT", OBJECT, "PutObjectTagging", tagging.put_object_tagging, ("tagging",)),
    Row("DELETE", OBJECT, "DeleteObjectTagging", tagging.delete_object_tagging, ("tagging",)),
    Row("GET", OBJECT, "GetObjectAttributes", attributes.get_object_attributes, ("attributes",)),
    Row("GET", OBJECT, "GetObjectAcl", defaults.get_object_acl, ("acl",)),
    Row("PUT", OBJECT, "PutObjectAcl", defaults.put_object_acl, ("acl",)),
    Row("GET", OBJECT, "GetObjectLegalHold", defaults.no_object_lock, ("legal-hold",)),
    Row("GET", OBJECT, "GetObjectRetention", defaults.no_object_lock, ("retention",)),
    #
    Row("GET", OBJECT, "GetObject", objects.get_object, ("partNumber",)),
    Row("GET", OBJECT, "GetObject", objects.get_object),
    Row("HEAD", OBJECT, "HeadObject", objects.head_object, ("partNumber",)),
    Row("HEAD", OBJECT, "HeadObject", objects.head_object),
    Row("PUT", OBJECT, "CopyObject", copying.copy_object, (), SOURCE),
    Row("PUT", OBJECT, "PutObject", putting.put_object),
    Row("DELETE", OBJECT, "DeleteObject", deleting.delete_object),
    #
    Row("POST", OBJECT, "Unknown", beside.post),
)

ROUTES = Routes(ROWS)
