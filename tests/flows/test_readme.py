"""What a start of the gateway prints can be typed. That the README's commands print what it says they print is shown by
`test_second_location.py`, which follows the README from its first command on."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pages import ROOT, Fence, Step, fences, steps
from tests.reader import Reader, clone_in, interrupt

README = ROOT / "README.md"


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    return Reader(clone_in(tmp_path / "clone"))


@pytest.fixture
def background(reader: Reader) -> Iterator[list[subprocess.Popen[bytes]]]:
    running: list[subprocess.Popen[bytes]] = []
    yield running
    for process in running:
        interrupt(process)


def blocks(directive: str) -> list[Fence]:
    return [each for each in fences(README) if each.language == "console" and each.directive == directive]


def test_the_three_commands_that_a_start_prints_work_and_work_again_after_a_second_start(reader, background):
    (serve,) = [step for block in blocks("in the background") for step in steps(block)]
    path = next(step for block in blocks("") for step in steps(block) if step.command.startswith("export PATH="))
    background.append(reader.start(serve))
    first = reader.tries()
    assert len(first) == 3, reader.background.read_text()
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
