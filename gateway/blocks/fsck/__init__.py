"""The check of a site: its journal, its tables, and the blocks on its backends."""
