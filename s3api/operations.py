"""The routing table: each S3 operation and its handler. More specific rows come before less specific ones."""

from __future__ import annotations

from s3api import extension
from s3api.format.copy_source import SOURCE
from s3api.format.request_target import BUCKET, OBJECT, SERVICE
from s3api.ops import (
    attributes,
    bucket_cors,
    bucket_policy,
    bucket_tagging,
    buckets,
    delete,
    list_versions,
    multipart,
    multipart_complete,
    put,
    subresources,
    tagging,
)
from s3api.ops import copy as copy_ops
from s3api.ops import get as get_ops
from s3api.ops import list as list_ops
from s3api.routing import Route, RoutingTable

PART = ("partNumber", "uploadId")

ROUTE_ROWS = (
    Route("GET", SERVICE, "ListBuckets", buckets.list_buckets),
    #
    Route("PUT", BUCKET, "CreateBucket", buckets.create_bucket),
    Route("HEAD", BUCKET, "HeadBucket", buckets.head_bucket),
    Route("DELETE", BUCKET, "DeleteBucket", buckets.delete_bucket),
    Route("GET", BUCKET, "GetBucketLocation", buckets.get_location, ("location",)),
    Route("GET", BUCKET, "GetBucketVersioning", buckets.get_versioning, ("versioning",)),
    Route("PUT", BUCKET, "PutBucketVersioning", buckets.put_versioning, ("versioning",)),
    Route("GET", BUCKET, "ListMultipartUploads", multipart.list_multipart_uploads, ("uploads",)),
    Route("GET", BUCKET, "ListObjectVersions", list_versions.list_object_versions, ("versions",)),
    Route("GET", BUCKET, "ListObjectsV2", list_ops.list_objects_v2, ("list-type=2",)),
    Route("GET", BUCKET, "ListObjects", list_ops.list_objects_v1),
    Route("POST", BUCKET, "DeleteObjects", delete.delete_objects, ("delete",)),
    Route("POST", BUCKET, "PostObject", subresources.post_form, signed=False),
    #
    *(Route("OPTIONS", scope, "PreflightRequest", bucket_cors.preflight, signed=False) for scope in (BUCKET, OBJECT)),
    Route("GET", BUCKET, "GetBucketCors", bucket_cors.get_bucket_cors, ("cors",)),
    Route("PUT", BUCKET, "PutBucketCors", bucket_cors.put_bucket_cors, ("cors",)),
    Route("DELETE", BUCKET, "DeleteBucketCors", bucket_cors.delete_bucket_cors, ("cors",)),
    Route("GET", BUCKET, "GetBucketTagging", bucket_tagging.get_bucket_tagging, ("tagging",)),
    Route("PUT", BUCKET, "PutBucketTagging", bucket_tagging.put_bucket_tagging, ("tagging",)),
    Route("DELETE", BUCKET, "DeleteBucketTagging", bucket_tagging.delete_bucket_tagging, ("tagging",)),
    Route("GET", BUCKET, "GetBucketPolicy", bucket_policy.get_bucket_policy, ("policy",)),
    Route("PUT", BUCKET, "PutBucketPolicy", bucket_policy.put_bucket_policy, ("policy",)),
    Route("DELETE", BUCKET, "DeleteBucketPolicy", bucket_policy.delete_bucket_policy, ("policy",)),
    Route("GET", BUCKET, "GetBucketPolicyStatus", bucket_policy.get_bucket_policy_status, ("policyStatus",)),
    Route("GET", BUCKET, "GetPublicAccessBlock", bucket_policy.get_public_access_block, ("publicAccessBlock",)),
    Route("PUT", BUCKET, "PutPublicAccessBlock", bucket_policy.put_public_access_block, ("publicAccessBlock",)),
    Route(
        "DELETE", BUCKET, "DeletePublicAccessBlock", bucket_policy.delete_public_access_block, ("publicAccessBlock",)
    ),
    #
    Route("GET", BUCKET, "GetBucketAcl", subresources.get_bucket_acl, ("acl",)),
    Route("PUT", BUCKET, "PutBucketAcl", subresources.put_bucket_acl, ("acl",)),
    Route("GET", BUCKET, "GetBucketEncryption", subresources.get_bucket_encryption, ("encryption",)),
    Route("PUT", BUCKET, "PutBucketEncryption", subresources.put_bucket_encryption, ("encryption",)),
    *(
        Route("GET", BUCKET, f"Get{subresources.OPERATION[name]}", subresources.absent_configuration(code), (name,))
        for name, code in subresources.ABSENT.items()
    ),
    *(
        Route("GET", BUCKET, f"Get{subresources.OPERATION[name]}", subresources.fixed_document(*document), (name,))
        for name, document in subresources.FIXED.items()
    ),
    *(
        Route(
            "PUT",
            BUCKET,
            f"Put{subresources.OPERATION[name]}",
            subresources.accept_only_default(*document, name),
            (name,),
        )
        for name, document in subresources.FIXED.items()
    ),
    *(
        Route("GET", BUCKET, f"List{subresources.OPERATION[name]}s", subresources.empty_list(document), (name,))
        for name, document in subresources.LISTS.items()
    ),
    *(
        Route("DELETE", BUCKET, f"Delete{subresources.OPERATION[name]}", subresources.nothing_to_remove, (name,))
        for name in subresources.REMOVABLE
    ),
    #
    Route("PUT", OBJECT, "UploadPartCopy", multipart.upload_part_copy, PART, SOURCE),
    Route("PUT", OBJECT, "UploadPart", multipart.upload_part, PART),
    Route("GET", OBJECT, "ListParts", multipart.list_parts, ("uploadId",)),
    Route("POST", OBJECT, "CompleteMultipartUpload", multipart_complete.complete_multipart_upload, ("uploadId",)),
    Route("DELETE", OBJECT, "AbortMultipartUpload", multipart.abort_multipart_upload, ("uploadId",)),
    Route("POST", OBJECT, "CreateMultipartUpload", multipart.create_multipart_upload, ("uploads",)),
    Route("GET", OBJECT, "GetObjectTagging", tagging.get_object_tagging, ("tagging",)),
    Route("PUT", OBJECT, "PutObjectTagging", tagging.put_object_tagging, ("tagging",)),
    Route("DELETE", OBJECT, "DeleteObjectTagging", tagging.delete_object_tagging, ("tagging",)),
    Route("GET", OBJECT, "GetObjectAttributes", attributes.get_object_attributes, ("attributes",)),
    Route("GET", OBJECT, "GetObjectAcl", subresources.get_object_acl, ("acl",)),
    Route("PUT", OBJECT, "PutObjectAcl", subresources.put_object_acl, ("acl",)),
    Route("GET", OBJECT, "GetObjectLegalHold", subresources.no_object_lock, ("legal-hold",)),
    Route("GET", OBJECT, "GetObjectRetention", subresources.no_object_lock, ("retention",)),
    #
    Route("GET", OBJECT, "GetObject", get_ops.get_object, ("partNumber",)),
    Route("GET", OBJECT, "GetObject", get_ops.get_object),
    Route("HEAD", OBJECT, "HeadObject", get_ops.head_object, ("partNumber",)),
    Route("HEAD", OBJECT, "HeadObject", get_ops.head_object),
    Route("PUT", OBJECT, "CopyObject", copy_ops.copy_object, (), SOURCE),
    Route("PUT", OBJECT, "PutObject", put.put_object),
    Route("DELETE", OBJECT, "DeleteObject", delete.delete_object),
    #
    Route("POST", OBJECT, "Unknown", extension.handle_extension),
)

ROUTES = RoutingTable(ROUTE_ROWS)
