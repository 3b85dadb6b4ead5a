"""The committer: connections, the queue of commands, group commit, leases."""
