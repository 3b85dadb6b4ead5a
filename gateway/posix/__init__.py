"""The tree for programs that think in files: the fsspec protocol `entrepot://`, over a small set of verbs.

Nothing here is imported by a gateway; fsspec is loaded when somebody asks for the file system.
"""
