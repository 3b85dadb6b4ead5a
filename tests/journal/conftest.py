"""A journal, and a process that commits to it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journal.process import end, found, start


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found(tmp_path)
    return tmp_path


@pytest.fixture
def committer(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = start(folder)
    yield process
    end(process)
