"""Ports of 127.0.0.1 for servers that tests start: below those that the kernel hands out itself, so that no connection
of anybody's takes one between its choice and its use."""

import random
import socket
from pathlib import Path

HANDED_OUT = Path("/proc/sys/net/ipv4/ip_local_port_range")
LOWEST = 10_000


def free_port(following: int = 0) -> int:
    """A port that nobody listens on right now, nor on the *following* ones after it."""
    end = int(HANDED_OUT.read_text().split()[0]) if HANDED_OUT.exists() else 32_768
    choices = range(LOWEST, end - following)
    while True:
        port = random.choice(choices)
        if all(_is_free(each) for each in range(port, port + following + 1)):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
