"""A server's log, as it is read while it is written, and while those who write it are killed.

The kernel copies what is written page by page, and looks between them whether the writer was killed: so a line may be
torn, and what somebody else wrote next stands behind its head. A line that is being written may be seen in part.
"""

from __future__ import annotations

from pathlib import Path

from gateway.timing import VARIABLE as TIMING

LINE_BEGINS = '{"at":"'


def whole_lines(text: bytes) -> list[str]:
    """The lines of a log that are ended, without those in which processes announce the timing that a test gave them."""
    ended = text[: text.rfind(b"\n") + 1].decode(errors="replace").splitlines()
    return [line for line in ended if not line.startswith(f"{TIMING}: ")]


def untorn(line: str) -> tuple[str, str]:
    """The heads of torn lines that a line begins with, mostly none, and the line itself."""
    torn, _, rest = line.rpartition(LINE_BEGINS)
    return (torn, LINE_BEGINS + rest) if torn.startswith(LINE_BEGINS) else ("", line)


def logged(path: Path) -> list[str]:
    """The lines of a log so far, without what is left of torn ones."""
    return [untorn(line)[1] for line in whole_lines(path.read_bytes())]
