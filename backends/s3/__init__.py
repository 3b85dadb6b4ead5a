"""A prefix of an S3 bucket as a backend: AWS, MinIO, Ceph and compatible servers."""
