"""The commands of docs/sharing.md are typed as they stand, and print what the page says."""

import pytest

from tests.flows.test_second_location import STARTED, console
from tests.pages import ROOT, steps
from tests.reader import Reader, clone_in, interrupt

PAGE = ROOT / "docs" / "sharing.md"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_commands_of_the_page_print_what_it_says(tmp_path):
    reader = Reader(clone_in(tmp_path / "clone"))
    start, first, *_ = console(ROOT / "README.md")
    assert start.directive == STARTED
    (serve,) = steps(start)
    running = reader.start(serve)
    try:
        reader.follow([step for block in (first, *console(PAGE)) for step in steps(block)])
    finally:
        interrupt(running)
