"""Commands on buckets, names, nodes, objects and uploads. They run in the committer, over rows in memory."""
