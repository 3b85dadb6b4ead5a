"""Entrepot's core: the journal, the tree, the blocks and the front desk. No S3 protocol in here."""

__version__ = "0.1.0"
