"""What a record is: a frozen dataclass with an integer tag. A tag keeps its meaning for good; a new field stands last,
with a default; a new meaning is a new tag, written only once the journal's feature level says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, dataclass_transform

FEATURE_LEVEL = 10
"""The newest level that this code knows. 2: blocks are brought where they should be (tags 90 and up). 3: a bucket goes
although uploads into it are open (tags 44 and 85). 4: old copies of a block that was moved are kept for a while (tag
98). 5: each start of a committer draws a fencing token (tag 4), and the end of a session says whether its process was
seen alive (tag 21). 6: a journal may begin with tables that were restored without their records (tag 8). 7: tall
directories keep their height (tag 62). 8: a new pack is kept for a while before extents move there (tags 77 to 79).
9: the parts of a completed upload are dropped afterwards (tag 86). 10: the runs of copied parts are counted before the
upload is completed (tag 87)."""

T = TypeVar("T")

RECORDS: dict[int, type[Any]] = {}
"""Every record class by its tag."""


@dataclass_transform(frozen_default=True)
def record(tag: int, feature: int = 1) -> Callable[[type[T]], type[T]]:
    """Make a class a record: frozen, slotted, known by *tag*, allowed from *feature* level on."""

    def register(cls: type[T]) -> type[T]:
        made = dataclass(frozen=True, slots=True)(cls)
        if tag in RECORDS:
            raise TypeError(f"tag {tag} is taken by {RECORDS[tag].__name__}")
        made.TAG = tag  # type: ignore[attr-defined]
        made.FEATURE = feature  # type: ignore[attr-defined]
        RECORDS[tag] = made
        return made

    return register
