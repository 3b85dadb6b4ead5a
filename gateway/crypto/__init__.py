"""Sealing blocks, and the keys for it: ring keys and master keys. Only `ring_key_commands` knows the journal."""
