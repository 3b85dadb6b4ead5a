"""The front desk: every verb that S3 and POSIX share, over the tree and the blocks."""
