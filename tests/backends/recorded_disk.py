"""A recording of what a local backend asks of the disk, and what of it a power cut may leave.

`Recorder` stands in for the `os` module in the driver's files: each call is carried out, and those that change
something are written down in order. `Disk` replays the first so many of them and keeps, of what was not synced, only
what chance decides: any subset of the changed names, any subset of the written pages. That is harsher than most file
systems, which keep metadata in order.

A file's size follows the pages that were kept, and a truncation that was.
A sync of a folder keeps the names in it, a sync of a file its bytes.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

PAGE = 4_096


@dataclass(frozen=True)
class Event:
    """One call: what, on which path or file (its number), with which bytes at which offset."""

    what: str
    path: str = ""
    to: str = ""
    file: int = 0
    at: int = 0
    data: bytes = b""


class Recorder:
    """Behaves as the `os` module and keeps `events`. Paths are relative to the root that was opened first."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._lock = threading.RLock()
        self._numbers: dict[int, int] = {}  # inode -> file number
        self._files = 0
        self._fds: dict[int, tuple[int, str]] = {}  # descriptor -> (file number, path)

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def adopt(self, root: Path) -> None:
        """Begin with what stands in *root*, all of it synced."""
        folders = [""]
        for path in sorted(root.rglob("*")):
            name = str(path.relative_to(root))
            if path.is_dir():
                folders.append(name)
                self.events.append(Event("mkdir", name))
                continue
            self._files += 1
            self._numbers[path.stat().st_ino] = self._files
            self.events.append(Event("create", name, file=self._files))
            self.events.append(Event("write", file=self._files, data=path.read_bytes()))
            self.events.append(Event("sync", file=self._files, at=len(self.events)))
        self.events += [Event("sync names", folder, at=len(self.events)) for folder in folders]

    def note(self, what: str, path: str = "") -> None:
        """Something that the test wants in the row of events."""
        with self._lock:
            self.events.append(Event(what, path))

    @contextmanager
    def standing_in(self, monkeypatch: pytest.MonkeyPatch, modules: Sequence[ModuleType]) -> Iterator[None]:
        """Let *modules* call this instead of `os`."""
        with monkeypatch.context() as patch:
            for module in modules:
                patch.setattr(module, "os", self)
            yield

    def open(self, path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        with self._lock:
            fd = os.open(path, flags, mode, dir_fd=dir_fd)
            if flags & os.O_DIRECTORY:
                self._fds[fd] = (0, "" if dir_fd is None else path)
                return fd
            inode = os.fstat(fd).st_ino
            if flags & os.O_EXCL or (flags & os.O_CREAT and inode not in self._numbers):
                self._files += 1
                self._numbers[inode] = self._files
                self.events.append(Event("create", path, file=self._files))
            self._fds[fd] = (self._numbers[inode], path)
            return fd

    def close(self, fd: int) -> None:
        with self._lock:
            self._fds.pop(fd, None)
            os.close(fd)

    def pwritev(self, fd: int, buffers: Sequence[Any], at: int) -> int:
        with self._lock:
            done = os.pwritev(fd, buffers, at)
            data = b"".join(buffers)[:done]
            self.events.append(Event("write", file=self._fds[fd][0], at=at, data=data))
            return done

    def ftruncate(self, fd: int, length: int) -> None:
        with self._lock:
            os.ftruncate(fd, length)
            self.events.append(Event("truncate", file=self._fds[fd][0], at=length))

    def fsync(self, fd: int) -> None:
        self._sync(fd, os.fsync)

    def fdatasync(self, fd: int) -> None:
        self._sync(fd, os.fdatasync)

    def _sync(self, fd: int, call: Callable[[int], None]) -> None:
        """What is synced is what was written before the call; what is promised, once it has returned. So the event
        stands at its end and says where it began."""
        with self._lock:
            began, (file, path) = len(self.events), self._fds[fd]
        call(fd)
        with self._lock:
            self.events.append(Event("sync" if file else "sync names", path, file=file, at=began))

    def rename(self, path: str, to: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        with self._lock:
            os.rename(path, to, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
            self.events.append(Event("rename", path, to))

    def unlink(self, path: str, *, dir_fd: int) -> None:
        with self._lock:
            status = os.stat(path, dir_fd=dir_fd)
            os.unlink(path, dir_fd=dir_fd)
            if status.st_nlink == 1:
                self._numbers.pop(status.st_ino, None)
            self.events.append(Event("unlink", path))

    def mkdir(self, path: str, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        with self._lock:
            os.mkdir(path, mode, dir_fd=dir_fd)
            if dir_fd is not None:
                self.events.append(Event("mkdir", path))

    def rmdir(self, path: str, *, dir_fd: int) -> None:
        with self._lock:
            os.rmdir(path, dir_fd=dir_fd)
            self.events.append(Event("rmdir", path))


@dataclass
class _File:
    # (event's number, offset, bytes), or None instead of bytes where the file was cut off there
    written: list[tuple[int, int, bytes | None]] = field(default_factory=list)
    synced_to: int = 0  # events before this one are kept


class Disk:
    """What a power cut after the first *count* of *events* may leave, as *chance* has it."""

    def __init__(self, events: Sequence[Event], count: int, chance: random.Random) -> None:
        self._events = events[:count]
        self._chance = chance
        self._files: dict[int, _File] = {}
        self._names_synced: dict[str, int] = {}  # folder -> events before this one are kept
        for number, event in enumerate(self._events):
            self._note(number, event)

    def write_to(self, folder: Path) -> None:
        """Make *folder* look so."""
        folder.mkdir()
        names, folders = self._names(), {""}
        for path in sorted(names):
            if path.rpartition("/")[0] not in folders:
                continue  # the name of a folder above it was lost
            number = names[path]
            if number == 0:
                (folder / path).mkdir()
                folders.add(path)
            else:
                (folder / path).write_bytes(self._content(self._files[number]))

    def _note(self, number: int, event: Event) -> None:
        match event.what:
            case "create":
                self._files[event.file] = _File()
            case "write":
                self._files[event.file].written.append((number, event.at, event.data))
            case "truncate":
                self._files[event.file].written.append((number, event.at, None))
            case "sync":
                self._files[event.file].synced_to = max(self._files[event.file].synced_to, event.at)
            case "sync names":
                self._names_synced[event.path] = max(self._names_synced.get(event.path, 0), event.at)

    def _names(self) -> dict[str, int]:
        """path -> file number, or 0 for a folder."""
        names: dict[str, int] = {}
        now: dict[str, int] = {}  # as they were for the running process
        for number, event in enumerate(self._events):
            match event.what:
                case "create" | "mkdir":
                    now[event.path] = event.file
                    self._change(names, number, event.path, event.file)
                case "rename":
                    file = now.pop(event.path)
                    now[event.to] = file
                    self._change(names, number, event.to, file)
                    self._change(names, number, event.path, None)
                case "unlink" | "rmdir":
                    now.pop(event.path)
                    self._change(names, number, event.path, None)
        return names

    def _change(self, names: dict[str, int], number: int, path: str, file: int | None) -> None:
        if number >= self._names_synced.get(path.rpartition("/")[0], 0) and self._chance.random() < 0.5:
            return
        if file is None:
            names.pop(path, None)
        else:
            names[path] = file

    def _content(self, file: _File) -> bytes:
        content = bytearray()
        for number, at, data in file.written:
            if data is None:
                if number < file.synced_to or self._chance.random() < 0.5:
                    del content[at:]
                continue
            for start in range(0, len(data), PAGE):
                if number < file.synced_to or self._chance.random() < 0.5:
                    part = data[start : start + PAGE]
                    if len(content) < at + start:
                        content.extend(bytes(at + start - len(content)))
                    content[at + start : at + start + len(part)] = part
        return bytes(content)
