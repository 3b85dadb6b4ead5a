"""The write path: a body is hashed, split into blocks, sealed, and put on its backends."""
