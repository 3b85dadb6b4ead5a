"""The page on fsspec, tried: its commands are typed, and its programs run, as they stand.

The blocks of Python share one program. A line that ends in `# → VALUE` is an expression of that value.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.endpoint import ROOT, command_environment, started
from tests.pages import Fence, fences, steps

PAGE = ROOT / "docs" / "fsspec.md"
SHOWN = re.compile(r"^( *)(.+?)  # → (.+)$")


def tried(line: str) -> str:
    """A line of the page as one of the program: what it says is so has to be."""
    shown = SHOWN.match(line)
    if shown is None:
        return line
    indent, expression, value = shown.groups()
    return f"{indent}found = {expression}; assert found == {value}, ({expression!r}, found)"


OVER_HTTP = "## Over HTTP"
ADDRESS = "http://127.0.0.1:9000"


def parts() -> tuple[list[Fence], list[Fence]]:
    """The blocks for a program in process, and those for one over HTTP: those of the section of that name."""
    lines = PAGE.read_text().splitlines()
    begins = lines.index(OVER_HTTP)
    ends = next(number for number in range(begins + 1, len(lines)) if lines[number].startswith("## "))
    far = [fence for fence in fences(PAGE) if begins < fence.line <= ends]
    return [fence for fence in fences(PAGE) if fence not in far], far


def program(some: list[Fence]) -> str:
    return "\n".join(tried(line) for fence in some if fence.language == "python" for line in fence.text.splitlines())


def typed(some: list[Fence]) -> list[str]:
    return [step.command for fence in some if fence.language == "console" for step in steps(fence)]


def run(folder: Path, commands: list[str], page: str) -> str:
    (folder / "page.py").write_text(page)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-c", "\n".join(["set -euo pipefail", *commands, f"{sys.executable} page.py"])],
        cwd=folder,
        env=command_environment() | {"PATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_every_block_in_process_does_what_the_page_says(tmp_path: Path):
    near, _ = parts()
    assert "made site" in run(tmp_path, typed(near), program(near))


@pytest.mark.slow
def test_every_block_over_http_does_what_the_page_says(tmp_path: Path):
    _, far = parts()
    with started(tmp_path / "site") as (running, _):
        commands = [each for each in typed(far) if each != "entrepot serve ./site"]
        assert len(commands) == len(typed(far)) - 1
        assert any(ADDRESS in each for each in commands)
        run(tmp_path, [each.replace(ADDRESS, running.url) for each in commands], program(far))


def test_every_block_is_run_and_says_something():
    assert {fence.language for fence in fences(PAGE)} == {"console", "python"}
    assert all("# → " in fence.text for fence in fences(PAGE) if fence.language == "python")
