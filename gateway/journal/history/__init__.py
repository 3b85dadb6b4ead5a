"""The journal as a whole: its hash chain, replay, comparison with the tables, and backup."""
