"""The page on fsspec, tried: its commands are typed, and its programs run, as they stand.

The blocks of Python share one program. A line that ends in `# → VALUE` is an expression of that value.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.endpoint import ROOT, command_environment
from tests.pages import fences, steps

PAGE = ROOT / "docs" / "fsspec.md"
SHOWN = re.compile(r"^( *)(.+?)  # → (.+)$")


def tried(line: str) -> str:
    """A line of the page as one of the program: what it says is so has to be."""
    shown = SHOWN.match(line)
    if shown is None:
        return line
    indent, expression, value = shown.groups()
    return f"{indent}found = {expression}; assert found == {value}, ({expression!r}, found)"


def program() -> str:
    blocks = [fence.text for fence in fences(PAGE) if fence.language == "python"]
    return "\n".join(tried(line) for block in blocks for line in block.splitlines())


def test_every_block_of_the_page_does_what_the_page_says(tmp_path: Path):
    (tmp_path / "page.py").write_text(program())
    typed = [step.command for fence in fences(PAGE) if fence.language == "console" for step in steps(fence)]
    script = "\n".join(["set -euo pipefail", *typed, f"{sys.executable} page.py"])
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env=command_environment() | {"PATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "made site" in done.stdout


def test_every_block_is_run_and_says_something():
    assert {fence.language for fence in fences(PAGE)} == {"console", "python"}
    assert all("# → " in fence.text for fence in fences(PAGE) if fence.language == "python")
