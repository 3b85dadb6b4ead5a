"""A site: what its config describes, built and connected; what `serve`, the commands and an in-process client open."""
