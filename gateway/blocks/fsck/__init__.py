"""The check of a site: its tables, its journal, and the blocks on its backends."""
