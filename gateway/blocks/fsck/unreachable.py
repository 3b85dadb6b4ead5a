"""The account of a backend whose blocks could not all be checked. Pure."""

from __future__ import annotations

from dataclasses import dataclass

UNREACHABLE_AFTER = 8
"""A backend is not asked again once it has failed this many times in a row."""


@dataclass
class Unreachable:
    """A backend that could not be asked for some of its blocks."""

    why: str
    blocks: int = 0
    """How many blocks that the journal names there could not be checked."""
    failed_in_a_row: int = UNREACHABLE_AFTER
    """How many of the latest requests failed, one after the other."""

    @property
    def is_given_up(self) -> bool:
        """Whether the backend is not asked again."""
        return self.failed_in_a_row >= UNREACHABLE_AFTER
