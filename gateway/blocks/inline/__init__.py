"""Inline values: small blocks that are rows of the journal's database until the keeper writes them to files."""
