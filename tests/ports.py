"""Ports of 127.0.0.1 for servers that tests start: below those that the kernel hands out itself, so that no connection
of anybody's takes one between its choice and its use. A port stays the process's that chose it until that ends, also
while nobody listens there: no other process of the run chooses it."""

import fcntl
import os
import random
import socket
from pathlib import Path
from typing import IO

from tests.new_sites import TEMPLATES

HANDED_OUT = Path("/proc/sys/net/ipv4/ip_local_port_range")
LOWEST = 10_000
_chosen: list[IO[str]] = []
"""Locked files, one for each port that this process chose."""


def free_port(following: int = 0) -> int:
    """A port that nobody listens on right now, nor on the *following* ones after it, and that no other process of
    this run has chosen."""
    end = int(HANDED_OUT.read_text().split()[0]) if HANDED_OUT.exists() else 32_768
    choices = range(LOWEST, end - following)
    while True:
        port = random.choice(choices)
        if all(_is_free(each) and _choose(each) for each in range(port, port + following + 1)):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _choose(port: int) -> bool:
    """Whether *port* is this process's from now on; outside test runs it always is."""
    if TEMPLATES not in os.environ:
        return True
    folder = Path(os.environ[TEMPLATES], "ports")
    folder.mkdir(parents=True, exist_ok=True)
    file = (folder / str(port)).open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return False
    _chosen.append(file)
    return True
