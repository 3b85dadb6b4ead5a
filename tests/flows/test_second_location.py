"""The README's commands and those of its second page are typed as they stand, and print what the pages say."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pages import ROOT, Fence, Step, fences, steps
from tests.ports import free_port
from tests.reader import Reader, clone_in, interrupt

PAGE = ROOT / "docs" / "second-location.md"
STARTED, STOPPED = "in the background", "once the gateway was stopped"
CLOUD = "5555"
"""The port that the page gives to the mock."""


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    return Reader(clone_in(tmp_path / "clone"), {CLOUD: str(free_port())})


@pytest.fixture
def running() -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """What runs in the other terminals, by its command."""
    found: dict[str, subprocess.Popen[bytes]] = {}
    yield found
    for process in found.values():
        interrupt(process)


def console(page: Path) -> list[Fence]:
    return [each for each in fences(page) if each.language == "console"]


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_the_commands_of_the_readme_and_of_the_second_page_print_what_they_say(reader, running):
    typed: list[Step] = []
    for block in [*console(ROOT / "README.md"), *console(PAGE)]:
        if block.directive:
            reader.follow(typed)
            typed = []
        if block.directive == STARTED:
            (step,) = steps(block)
            running[step.command] = reader.start(step)
            continue
        if block.directive == STOPPED:
            interrupt(running["make serve"])
        typed += steps(block)
    reader.follow(typed)
    assert not (reader.clone / "var" / "site" / "blocks").exists()


def test_no_block_says_something_that_this_test_does_not_know():
    assert {each.directive for each in fences(PAGE)} == {"", STARTED, STOPPED}
