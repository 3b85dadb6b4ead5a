"""Someone who reads a page and types what it says into terminals, in a clone; and whether what it prints is printed.

In a ```console block a line that begins with `$ ` is a command (`> ` where it goes on), what follows is what it
prints, `…` standing for anything; a command that has `…` in it is one that the start of the server has printed. All
commands share one shell, as a reader's do. A comment above a block says what is different:
`<!-- run: in the background -->` is started and left running; `<!-- run: not -->` is only read.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.pages import ROOT, Step
from tests.ports import free_port

START_WITHIN_S = 240
TYPE_WITHIN_S = 600
MARK = "@@ command"
GATEWAY = "127.0.0.1:9000"
"""What the pages call the gateway's address."""


def clone_in(folder: Path) -> Path:
    """Make *folder* look like a clone whose environment is made: this one's files and this interpreter's."""
    folder.mkdir()
    for path in ROOT.iterdir():
        if path.name not in {".git", ".venv", ".make", "var"}:
            (folder / path.name).symlink_to(path)
    (folder / ".venv").symlink_to(sys.prefix)
    (folder / ".make").mkdir()
    (folder / ".make" / "env").touch()
    return folder


def pattern_of(line: str) -> str:
    """A line of a page as a regular expression, `…` standing for anything."""
    return ".*".join(re.escape(part) for part in line.strip().split("…"))


def matches(wanted: Sequence[str], printed: str) -> bool:
    """Whether the lines that a page shows stand in what was printed, in their order."""
    lines = iter(printed.splitlines())
    patterns = [pattern_of(line) for line in wanted if line.strip() != "…"]
    return all(any(re.fullmatch(pattern, line.strip()) for line in lines) for pattern in patterns)


class Reader:
    """Someone at several terminals, in a clone, where port 9000 is another one."""

    def __init__(self, clone: Path, instead: Mapping[str, str] | None = None) -> None:
        """*instead*: what is typed and expected in place of other things that the page names."""
        self.clone = clone
        self.port = str(free_port(following=1))  # the metrics are served beside it
        self.instead = {GATEWAY: f"127.0.0.1:{self.port}", **(instead or {})}
        self.background = clone.parent / "background"
        """What the last one that was started in the background has printed."""
        self._exported = clone.parent / "exported"
        hidden = ("AWS_", "ENTREPOT_", "MAKE", "MFLAGS")
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
        self.environment |= {"PORT": self.port, "PYTHONUNBUFFERED": "1", "AWS_CONFIG_FILE": os.devnull}

    def here(self, text: str) -> str:
        for named, meant in self.instead.items():
            text = text.replace(named, meant)
        return text

    def start(self, step: Step) -> subprocess.Popen[bytes]:
        """Start a command that stays, and wait until it has printed what the page shows."""
        with self.background.open("wb") as file:
            process = subprocess.Popen(
                ["bash", "-c", self.here(step.command)],
                cwd=self.clone,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        wanted = [self.here(line) for line in step.prints]
        deadline = time.monotonic() + START_WITHIN_S
        while not matches(wanted, self.background.read_text()):
            if process.poll() is not None or time.monotonic() > deadline:
                interrupt(process)
                raise AssertionError(f"{step.command} did not print {wanted}, but\n{self.background.read_text()}")
            time.sleep(0.1)
        return process

    def tries(self) -> list[str]:
        """The commands that the server's start has printed below `try:`."""
        return re.findall(r"^ +(\S.*)$", self.background.read_text().partition("try:\n")[2], re.MULTILINE)

    def command(self, step: Step) -> str:
        """What to type for a step: itself, or the printed command that it stands for."""
        text = self.here(step.command)
        if "…" not in text:
            return text
        (found,) = [printed for printed in self.tries() if re.fullmatch(pattern_of(text), printed)]
        return found

    def type(self, typed: Sequence[Step]) -> list[str]:
        """Type commands into the shell, one after the other; what each printed. What they export stays."""
        script = f"set -euo pipefail\ntrap 'export -p > {self._exported}' EXIT\n" + "".join(
            f"echo '{MARK} {number}'\n{self.command(step)}\n" for number, step in enumerate(typed)
        )
        before = f". {self._exported}\n" if self._exported.exists() else ""
        done = subprocess.run(
            ["bash", "-c", before + script],
            cwd=self.clone,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TYPE_WITHIN_S,
        )
        assert done.returncode == 0, done.stdout
        return re.split(rf"^{MARK} \d+\n", done.stdout, flags=re.MULTILINE)[1:]

    def follow(self, typed: Sequence[Step]) -> None:
        """Type commands, and see that each prints what the page says."""
        for step, printed in zip(typed, self.type(typed), strict=True):
            wanted = [self.here(line) for line in step.prints]
            assert matches(wanted, printed), f"$ {step.command}\nshould print {wanted}, but printed\n{printed}"


def interrupt(process: subprocess.Popen[bytes]) -> int:
    """Ctrl-C in the terminal where a command runs."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGINT)
    return process.wait(60)
