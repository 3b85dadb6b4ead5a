"""Fixtures of the tests of blocks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.blocks.site import Site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """An empty site with its workers."""
    made = Site(tmp_path)
    yield made
    made.close()
