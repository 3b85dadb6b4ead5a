"""The write path: a body is chunked, hashed, packed, sealed, and put on its backends."""
