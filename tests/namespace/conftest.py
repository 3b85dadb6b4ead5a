"""What tests of the tree's commands begin with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.namespace.counting import check
from tests.namespace.world import World


@pytest.fixture
def world() -> Iterator[World]:
    """With a bucket; what it counts is compared with what is there at the end."""
    made = World()
    made.bucket()
    yield made
    check(made)
