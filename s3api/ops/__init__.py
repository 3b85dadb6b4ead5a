"""S3's operations, each a function from a request to its response."""
