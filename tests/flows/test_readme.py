"""The README's promise, kept: its commands are typed as they stand, and print what it says they print.

In a ```console block a line that begins with `$ ` is a command (`> ` where it goes on), what follows is what it
prints, `…` standing for anything; a command that has `…` in it is one that the start of the server has printed. All
commands share one shell, as a reader's do. A comment above a block says what is different:
`<!-- run: in the background -->` is started and left running; `<!-- run: not -->` is only read.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pages import ROOT, Fence, Step, fences, steps
from tests.ports import free_port

README = ROOT / "README.md"
START_WITHIN_S = 120
MARK = "@@ command"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A directory that looks like a clone whose environment is made: this one's files and this interpreter's."""
    folder = tmp_path / "clone"
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


def matches(wanted: list[str], printed: str) -> bool:
    """Whether the lines that a page shows stand in what was printed, in their order."""
    lines = iter(printed.splitlines())
    patterns = [pattern_of(line) for line in wanted if line.strip() != "…"]
    return all(any(re.fullmatch(pattern, line.strip()) for line in lines) for pattern in patterns)


class Reader:
    """Someone at two terminals, in a clone, where port 9000 is another one."""

    def __init__(self, clone: Path) -> None:
        self.clone = clone
        self.port = str(free_port(following=1))  # the metrics are served beside it
        self.background = clone.parent / "background"
        hidden = ("AWS_", "ENTREPOT_", "MAKE", "MFLAGS")
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
        self.environment |= {"PORT": self.port, "PYTHONUNBUFFERED": "1", "AWS_CONFIG_FILE": os.devnull}

    def here(self, text: str) -> str:
        return text.replace("127.0.0.1:9000", f"127.0.0.1:{self.port}")

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

    def type(self, typed: list[Step]) -> list[str]:
        """Type commands into one shell, one after the other; what each printed."""
        script = "set -euo pipefail\n" + "".join(
            f"echo '{MARK} {number}'\n{self.command(step)}\n" for number, step in enumerate(typed)
        )
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.clone,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=240,
        )
        assert done.returncode == 0, done.stdout
        return re.split(rf"^{MARK} \d+\n", done.stdout, flags=re.MULTILINE)[1:]


def interrupt(process: subprocess.Popen[bytes]) -> int:
    """Ctrl-C in the terminal where a command runs."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGINT)
    return process.wait(60)


@pytest.fixture
def reader(clone: Path) -> Reader:
    return Reader(clone)


@pytest.fixture
def background(reader: Reader) -> Iterator[list[subprocess.Popen[bytes]]]:
    running: list[subprocess.Popen[bytes]] = []
    yield running
    for process in running:
        interrupt(process)


def blocks(directive: str) -> list[Fence]:
    return [each for each in fences(README) if each.language == "console" and each.directive == directive]


def test_the_commands_of_the_readme_print_what_it_says(reader, background):
    background += [reader.start(step) for block in blocks("in the background") for step in steps(block)]
    assert len(background) == 1
    typed = [step for block in blocks("") for step in steps(block)]
    for step, printed in zip(typed, reader.type(typed), strict=True):
        wanted = [reader.here(line) for line in step.prints]
        assert matches(wanted, printed), f"$ {step.command}\nshould print {wanted}, but printed\n{printed}"


def test_the_three_commands_that_a_start_prints_work_as_printed(reader, background):
    (serve,) = [step for block in blocks("in the background") for step in steps(block)]
    background.append(reader.start(serve))
    tries = reader.tries()
    assert len(tries) == 3, reader.background.read_text()
    path = next(step for block in blocks("") for step in steps(block) if step.command.startswith("export PATH="))
    reader.type([path, *map(Step, tries)])


def test_a_second_start_finds_the_first_ones_data_and_its_commands_work_again(reader, background):
    (serve,) = [step for block in blocks("in the background") for step in steps(block)]
    path = next(step for block in blocks("") for step in steps(block) if step.command.startswith("export PATH="))
    background.append(reader.start(serve))
    first = reader.tries()
    reader.type([path, *map(Step, first)])
    interrupt(background.pop())
    background.append(reader.start(serve))
    assert reader.tries()[0] == first[0], "the same endpoint and keys"
    *_, listed, _ = reader.type([path, Step(reader.tries()[0]), Step("aws s3 ls s3://first"), Step("aws s3 ls")])
    assert "README.md" in listed
    reader.type([path, *map(Step, reader.tries())])


def test_no_block_says_something_that_this_test_does_not_know():
    known = {"", "in the background", "not"}
    assert {each.directive for each in fences(README)} <= known
