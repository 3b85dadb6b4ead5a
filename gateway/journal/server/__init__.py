"""The committer's side of the journal: connections, the queue of commands, group commit, leases."""
