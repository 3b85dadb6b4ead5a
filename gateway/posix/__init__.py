"""The tree for programs that use files: the fsspec protocol `entrepot://` over a small interface, `FileApi`.

A gateway imports `rpc.server`, and never fsspec.
"""
