"""The S3 protocol over the engine, and nothing else: HTTP in, one call at the front desk, HTTP out."""
