"""The journal: its records, the tables that they make, the committer, which alone appends, and its clients."""
