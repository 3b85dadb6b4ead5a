"""Entrepot's core: the journal, the tree, the blocks and the front desk. No S3 protocol in here."""
