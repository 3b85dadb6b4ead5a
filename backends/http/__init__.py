"""A small HTTP/1.1 client for servers that may be broken or hostile. It knows nothing of S3."""
