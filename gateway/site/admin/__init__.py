"""The work of the operator's commands. `gateway/cli` parses their arguments and prints their results."""
