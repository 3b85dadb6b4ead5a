"""What a power cut may leave of what was asked of the file system.

`Disk` takes recorded calls one by one and can be asked at any point for an image of what survives. What was synced
does: a file's bytes by a sync of the file, a name by a sync of its folder, everything by syncfs. Of the rest survives
what a `Fate` says, page by page and name by name, in any order: that is harsher than ext4 and XFS are.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.flows.tracing import Call

PAGE = 4_096
SECTOR = 512


class Fate(ABC):
    """What becomes of what was not synced."""

    @abstractmethod
    def keeps_name(self) -> bool:
        """Whether the next change of a name survives."""

    @abstractmethod
    def keeps(self, size: int, *, last: bool) -> list[tuple[int, int]]:
        """The stretches (start, end) that survive of the next write, of *size* bytes; *last*: it is the last of all."""


class Lost(Fate):
    """Nothing of it survives."""

    def keeps_name(self) -> bool:
        return False

    def keeps(self, size: int, *, last: bool) -> list[tuple[int, int]]:
        return []


class Torn(Fate):
    """All of it does, but for the last write, which ends somewhere."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def keeps_name(self) -> bool:
        return True

    def keeps(self, size: int, *, last: bool) -> list[tuple[int, int]]:
        return [(0, self._chance.randrange(0, size + 1, SECTOR) if last else size)]


class Kept(Torn):
    """All of it does."""

    def __init__(self) -> None:
        super().__init__(random.Random(0))

    def keeps(self, size: int, *, last: bool) -> list[tuple[int, int]]:
        return [(0, size)]


class Scattered(Fate):
    """Any of it does: some names, some pages."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._share = chance.choice((0.1, 0.5, 0.9))

    def keeps_name(self) -> bool:
        return self._chance.random() < self._share

    def keeps(self, size: int, *, last: bool) -> list[tuple[int, int]]:
        pages = [(at, min(at + PAGE, size)) for at in range(0, size, PAGE)]
        return [page for page in pages if self._chance.random() < self._share]


@dataclass(eq=False)
class _File:
    durable: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, Call]] = field(default_factory=list)

    def sync(self, began: int) -> None:
        for number, call in self.pending:
            if number < began:
                _change(self.durable, call, [(0, len(call.data))])
        self.pending = [each for each in self.pending if each[0] >= began]

    def surviving(self, fate: Fate, last: int) -> bytearray:
        if not self.pending:
            return self.durable
        content = bytearray(self.durable)
        for number, call in self.pending:
            if call.what == "write":
                _change(content, call, fate.keeps(len(call.data), last=number == last))
            elif fate.keeps_name():
                _change(content, call, [])
        return content


def _change(content: bytearray, call: Call, kept: Sequence[tuple[int, int]]) -> None:
    if call.what == "resize":
        del content[call.at :]
    if call.what in {"resize", "reserve"}:
        content.extend(bytes(max(0, call.at - len(content))))
    for start, end in kept:
        if start < end:
            content.extend(bytes(max(0, call.at + start - len(content))))
            content[call.at + start : call.at + end] = call.data[start:end]


@dataclass(eq=False)
class _Folder:
    now: dict[str, _File | _Folder] = field(default_factory=dict)
    durable: dict[str, _File | _Folder] = field(default_factory=dict)
    pending: list[tuple[int, str, _File | _Folder | None]] = field(default_factory=list)

    def change(self, number: int, name: str, node: _File | _Folder | None) -> None:
        _set(self.now, name, node)
        self.pending.append((number, name, node))

    def sync(self, began: int) -> None:
        for number, name, node in self.pending:
            if number < began:
                _set(self.durable, name, node)
        self.pending = [each for each in self.pending if each[0] >= began]

    def surviving(self, fate: Fate) -> dict[str, _File | _Folder]:
        names = dict(self.durable)
        for _, name, node in self.pending:
            if fate.keeps_name():
                _set(names, name, node)
        return names


def _set(names: dict[str, _File | _Folder], name: str, node: _File | _Folder | None) -> None:
    if node is None:
        names.pop(name, None)
    else:
        names[name] = node


class Disk:
    """A folder as it was for the processes, and what of it is durable."""

    def __init__(self) -> None:
        self._root = _Folder()
        self._number = 0
        self._last_write = -1
        self._everything: list[_File | _Folder] = [self._root]

    def adopt(self, folder: Path) -> None:
        """Begin with what stands in *folder*, all of it durable."""
        for path in sorted(folder.rglob("*")):
            if path.is_dir() or path.is_file():
                node = _Folder() if path.is_dir() else _File(bytearray(path.read_bytes()))
                self._put(0, str(path.relative_to(folder)), node)
        for each in self._everything:
            each.sync(1)

    def apply(self, call: Call) -> None:
        number, self._number = self._number, self._number + 1
        match call.what:
            case "create":
                self._put(number, call.path, _File())
            case "mkdir":
                self._put(number, call.path, _Folder())
            case "unlink" | "rmdir":
                folder, name = self._at(call.path)
                folder.change(number, name, None)
            case "rename" | "link":
                self._rename(number, call)
            case "write" | "resize" | "reserve":
                self._write(number, call)
            case "sync":
                node = self._find(call.path)
                if node is not None:
                    node.sync(call.began)
            case "sync all":
                for each in self._everything:
                    each.sync(call.began)

    def write_to(self, target: Path, fate: Fate) -> None:
        """Make the new folder *target* what the power cut leaves now."""
        self._write_folder(self._root, target, fate)

    def _write_folder(self, folder: _Folder, target: Path, fate: Fate) -> None:
        target.mkdir()
        for name, node in folder.surviving(fate).items():
            if isinstance(node, _Folder):
                self._write_folder(node, target / name, fate)
                continue
            content = node.surviving(fate, self._last_write)
            path = target / name
            path.touch(0o600)
            with path.open("wb") as file:
                file.write(content.rstrip(b"\0") if content.endswith(bytes(PAGE)) else content)
                file.truncate(len(content))

    def _at(self, path: str) -> tuple[_Folder, str]:
        above, _, name = path.rpartition("/")
        folder = self._find(above)
        assert isinstance(folder, _Folder), path
        return folder, name

    def _find(self, path: str) -> _File | _Folder | None:
        node: _File | _Folder | None = self._root
        for name in filter(None, path.split("/")):
            assert isinstance(node, _Folder), path
            node = node.now.get(name)
            if node is None:
                return None
        return node

    def _put(self, number: int, path: str, node: _File | _Folder) -> None:
        folder, name = self._at(path)
        folder.change(number, name, node)
        self._everything.append(node)

    def _rename(self, number: int, call: Call) -> None:
        folder, name = self._at(call.path)
        node = folder.now[name]
        assert isinstance(node, _File), "no folder is renamed"
        to_folder, to_name = self._at(call.to)
        to_folder.change(number, to_name, node)
        if call.what == "rename":
            folder.change(number, name, None)

    def _write(self, number: int, call: Call) -> None:
        file = self._find(call.path)
        assert isinstance(file, _File), call.path
        file.pending.append((number, call))
        if call.what == "write":
            self._last_write = number
