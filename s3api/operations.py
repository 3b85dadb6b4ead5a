"""The table of operations: what S3 calls each, and who answers it. The pickier row stands first."""

from __future__ import annotations

from s3api import buckets, deleting, listing, objects, putting
from s3api.routing import Routes, Row
from s3api.target import BUCKET, OBJECT, SERVICE

ROWS = (
    Row("GET", SERVICE, "ListBuckets", buckets.list_buckets),
    Row("PUT", BUCKET, "CreateBucket", buckets.create_bucket),
    Row("HEAD", BUCKET, "HeadBucket", buckets.head_bucket),
    Row("DELETE", BUCKET, "DeleteBucket", buckets.delete_bucket),
    Row("GET", BUCKET, "GetBucketLocation", buckets.get_location, ("location",)),
    Row("GET", BUCKET, "GetBucketVersioning", buckets.get_versioning, ("versioning",)),
    Row("PUT", BUCKET, "PutBucketVersioning", buckets.put_versioning, ("versioning",)),
    Row("GET", BUCKET, "ListObjectsV2", listing.list_objects_v2, ("list-type=2",)),
    Row("GET", BUCKET, "ListObjects", listing.list_objects_v1),
    Row("GET", OBJECT, "GetObject", objects.get_object, ("partNumber",)),
    Row("GET", OBJECT, "GetObject", objects.get_object),
    Row("HEAD", OBJECT, "HeadObject", objects.head_object, ("partNumber",)),
    Row("HEAD", OBJECT, "HeadObject", objects.head_object),
    Row("PUT", OBJECT, "PutObject", putting.put_object),
    Row("DELETE", OBJECT, "DeleteObject", deleting.delete_object),
)

ROUTES = Routes(ROWS)
