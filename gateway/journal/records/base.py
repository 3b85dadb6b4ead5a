"""The base of all records: a record is a frozen dataclass with an integer tag.

The meaning of a tag never changes. A new field comes last and has a default. A new meaning gets a new tag, which may be
written only once the journal has the feature level of that tag.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, dataclass_transform

FEATURE_LEVEL = 13
"""The newest feature level that this code knows. What each level added:

2: blocks are moved to where they should be (tags 90 and up).
3: a bucket can be deleted while uploads into it are open (tags 44 and 85).
4: old copies of a block that was moved are kept for a while (tag 98).
5: each start of a committer draws a fencing token (tag 4); the end of a session says whether its process was seen
   alive (tag 21).
6: a journal may begin with tables that were restored without their records (tag 8).
7: tall directories store their height (tag 62).
8: a new pack is kept for a while before extents are moved there (tags 77 to 79).
9: the parts of a completed upload are dropped afterwards (tag 86).
10: the runs of copied parts are counted before the upload is completed (tag 87).
12: users can be disabled, access keys expire, and buckets get another owner (tags 110 and 111).
13: buckets have documents, such as their CORS rules (tags 120 and 121)."""

T = TypeVar("T")

RECORDS: dict[int, type[Any]] = {}
"""Every record class by its tag."""


@dataclass_transform(frozen_default=True)
def record(tag: int, feature: int = 1) -> Callable[[type[T]], type[T]]:
    """Make a class a record: a frozen dataclass with slots, registered under *tag*, allowed from feature level
    *feature* on."""

    def register(cls: type[T]) -> type[T]:
        made = dataclass(frozen=True, slots=True)(cls)
        if tag in RECORDS:
            raise TypeError(f"tag {tag} is taken by {RECORDS[tag].__name__}")
        made.TAG = tag  # type: ignore[attr-defined]
        made.FEATURE = feature  # type: ignore[attr-defined]
        RECORDS[tag] = made
        return made

    return register
