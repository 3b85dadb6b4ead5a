"""The `entrepot` command. Nothing imports this room; it imports the others late, so that `--help` is fast."""
