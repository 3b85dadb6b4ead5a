"""The engine: the operations that S3 and files share, over the tree and the blocks. Knows neither HTTP nor errno."""
