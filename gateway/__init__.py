"""The core of Entrepot: journal, tree, blocks, engine, site. It contains no S3 protocol."""

__version__ = "0.1.0"
