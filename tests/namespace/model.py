"""The tree as the plainest thing that could be right: a dictionary from keys to their versions, newest first."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

OFF, ENABLED, SUSPENDED = 0, 1, 2


@dataclass
class Version:
    text: str
    """`null` or the id's text."""
    content: int | None
    """Whatever tells one content from another; None: a delete marker."""


@dataclass
class Model:
    versioning: int = OFF
    keys: dict[bytes, list[Version]] = field(default_factory=dict)

    def live(self) -> list[bytes]:
        return sorted(key for key, versions in self.keys.items() if versions[0].content is not None)

    def put(self, key: bytes, content: int | None, text: str | None) -> None:
        versions = self.keys.setdefault(key, [])
        if self.versioning != ENABLED:
            versions[:] = [version for version in versions if version.text != "null"]
            text = "null"
        versions.insert(0, Version(text or "null", content))

    def delete(self, key: bytes, text: str | None) -> None:
        if self.versioning == OFF:
            self.keys.pop(key, None)
        else:
            self.put(key, None, text)

    def delete_version(self, key: bytes, text: str) -> None:
        left = [version for version in self.keys.get(key, []) if version.text != text]
        if left:
            self.keys[key] = left
        else:
            self.keys.pop(key, None)

    def list(self, prefix: bytes, delimiter: bytes, after: bytes) -> list[tuple[bytes, bool]]:
        """(key or common prefix, whether it is a prefix)"""
        return roll(self.live(), prefix, delimiter, after)

    def list_versions(
        self, prefix: bytes, delimiter: bytes, after: bytes, after_version: str = ""
    ) -> list[tuple[bytes, str | None]]:
        """(key, version) or (common prefix, None)"""
        told: list[tuple[bytes, str | None]] = []
        for item, is_prefix in roll(sorted(self.keys), prefix, delimiter, b""):
            if is_prefix:
                told += [(item, None)] if item > after else []
                continue
            texts = [version.text for version in self.keys[item]]
            if item == after and after_version:
                texts = texts[texts.index(after_version) + 1 :] if after_version in texts else []
            elif item <= after:
                texts = []
            told += [(item, text) for text in texts]
        return told


def roll(keys: list[bytes], prefix: bytes, delimiter: bytes, after: bytes) -> list[tuple[bytes, bool]]:
    told: list[tuple[bytes, bool]] = []
    for key in keys:
        if not key.startswith(prefix):
            continue
        cut = key.find(delimiter, len(prefix)) if delimiter else -1
        item = (key, False) if cut < 0 else (key[: cut + len(delimiter)], True)
        if item[0] > after and (not told or told[-1] != item):
            told.append(item)
    return told


def behind(keys: list[bytes], key: bytes) -> list[bytes]:
    return keys[bisect_right(keys, key) :]
