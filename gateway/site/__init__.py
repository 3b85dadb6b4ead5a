"""A site: what its config describes, opened and connected. `serve`, the commands and in-process clients open one."""
