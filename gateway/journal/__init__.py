"""The journal: records in the past tense, the tables that they make, and the one process that appends."""
