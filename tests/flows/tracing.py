"""What all processes of a site asked of the file system, recorded with strace.

`record` runs a program under strace and answers its `Call`s below one folder, in the order in which they ended; lines
that the program writes into the file `stamps` stand among them, so that what was acknowledged when is known exactly.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

STAMPS = "stamps"
CALLS = (
    "open,openat,openat2,creat,write,writev,pwrite64,pwritev,pwritev2,truncate,ftruncate,fallocate,rename,renameat,"
    "renameat2,link,linkat,unlink,unlinkat,mkdir,mkdirat,rmdir,symlink,symlinkat,fsync,fdatasync,sync,syncfs,"
    "sync_file_range,sendfile,copy_file_range,splice"
)
_STRACE = (
    *("strace", "-f", "--seccomp-bpf", "-y", "-xx", "-s", str(16 << 20)),
    *("-e", f"trace={CALLS}", "-e", "signal=none"),
)
_OF_NAMES = {
    "mkdir": "mkdir",
    "mkdirat": "mkdir",
    "rmdir": "rmdir",
    "unlink": "unlink",
    "unlinkat": "unlink",
    "rename": "rename",
    "renameat": "rename",
    "renameat2": "rename",
    "link": "link",
    "linkat": "link",
}


class Call(NamedTuple):
    """One call that succeeded. *began*: the calls that had ended when it began, for a sync."""

    what: str
    path: str = ""
    to: str = ""
    at: int = 0
    data: bytes = b""
    began: int = 0


def why_not() -> str:
    """Why nothing can be recorded here; empty where it can."""
    if shutil.which("strace") is None:
        return "there is no strace: tests/install-clients installs it"
    tried = subprocess.run([*_STRACE, "true"], capture_output=True, text=True, timeout=300, check=False)
    return f"strace may not trace here: {tried.stderr.strip()[-300:]}" if tried.returncode else ""


def record(
    command: Sequence[str], root: Path, trace: Path, environment: dict[str, str], timeout_s: float
) -> list[Call]:
    """Run *command* to its end. Answers what it and its children did below *root*."""
    parser = _Parser(root)
    done = subprocess.run(
        [*_STRACE, "-o", str(trace), *command],
        env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    with trace.open("rb") as lines:
        return parser.parse(lines)


_CALL = re.compile(rb"(\w+)\((.*)\) += (-?\d+|\?)(?:<([^>]*)>)?.*", re.DOTALL)
_RESUMED = re.compile(rb"<\.\.\. \w+ resumed>(.*)", re.DOTALL)
_UNFINISHED = b" <unfinished ...>"
_DESCRIPTOR = re.compile(rb"(?:AT_FDCWD|\d+)<([^>]*)>(\(deleted\))?")


def _plain(escaped: bytes) -> bytes:
    return bytes.fromhex(escaped.replace(b"\\x", b"").decode())


class _Parser:
    def __init__(self, root: Path) -> None:
        """What stands in *root* is there before the first call."""
        self._root = str(root)
        self._calls: list[Call] = []
        self._begun: dict[bytes, tuple[bytes, int]] = {}  # thread -> what was said of its call, calls ended by then
        self._cursors: dict[str, int] = {}  # where the next plain write goes
        there = [(str(path.relative_to(root)), path.is_dir()) for path in root.rglob("*")]
        self._names = {name for name, is_folder in there if not is_folder}
        self._folders = {name for name, is_folder in there if is_folder}

    def parse(self, lines: Iterator[bytes]) -> list[Call]:
        for line in lines:
            thread, _, said = line.rstrip(b"\n").partition(b" ")
            said = said.lstrip()
            if said.endswith(_UNFINISHED):
                self._begun[thread] = (said[: -len(_UNFINISHED)], len(self._calls))
                continue
            began = len(self._calls)
            if resumed := _RESUMED.fullmatch(said):
                said, began = self._begun.pop(thread)
                said += resumed[1]
            if (found := _CALL.fullmatch(said)) and not found[3].startswith((b"-", b"?")):
                self._take(found[1].decode(), found[2], int(found[3]), found[4], began)
        return self._calls

    def _take(self, name: str, arguments: bytes, result: int, opened: bytes | None, began: int) -> None:
        before_data = arguments[: arguments.find(b'"')] if b'"' in arguments else arguments
        descriptors = [_plain(path).decode() for path, deleted in _DESCRIPTOR.findall(before_data) if not deleted]
        first = self._below(descriptors[0]) if descriptors else None
        match name:
            case "open" | "openat" | "creat" | "openat2":
                self._open(self._below(_plain(opened or b"").decode()), arguments)
            case "write" | "writev" | "pwrite64" | "pwritev" | "pwritev2" if first is not None:
                self._write(name, first, arguments, result)
            case "fsync" | "fdatasync" if first is not None:
                self._calls.append(Call("sync", first, began=began))
            case "sync" | "syncfs":
                self._calls.append(Call("sync all", began=began))
            case "ftruncate" | "truncate" | "fallocate" if first is not None or name == "truncate":
                self._resize(name, first, arguments)
            case _ if name in _OF_NAMES:
                self._change_names(name, self._paths(arguments), began)
            case "sync_file_range":
                """Promises nothing about what survives."""
            case "symlink" | "symlinkat" | "sendfile" | "copy_file_range" | "splice":
                assert first is None or name in {"sendfile", "splice"}, f"{name} of {first} is not understood"

    def _below(self, path: str) -> str | None:
        """The path below the root, empty for the root; None for one that is elsewhere."""
        return path[len(self._root) + 1 :] if f"{path}/".startswith(f"{self._root}/") else None

    def _paths(self, arguments: bytes) -> list[str | None]:
        """The paths in a call's arguments, those that are relative behind the descriptor before them."""
        found: list[str | None] = []
        folder = ""
        for token in re.finditer(rb'(?:AT_FDCWD|\d+)<([^>]*)>|"((?:\\x[0-9a-f]{2})*)"', arguments):
            if token[1] is not None:
                folder = _plain(token[1]).decode()
            else:
                found.append(self._below(str(Path(folder or "/nowhere") / _plain(token[2]).decode())))
        return found

    def _open(self, path: str | None, arguments: bytes) -> None:
        if path is None or b"O_DIRECTORY" in arguments or (b"O_WRONLY" not in arguments and b"O_RDWR" not in arguments):
            return
        if b"O_CREAT" in arguments and path not in self._names:
            self._names.add(path)
            self._calls.append(Call("create", path))
        elif b"O_TRUNC" in arguments:
            self._calls.append(Call("resize", path, at=0))
        self._cursors[path] = 0

    def _write(self, name: str, path: str, arguments: bytes, done: int) -> None:
        pieces = arguments.split(b'"')
        assert not any(piece.startswith(b"...") for piece in pieces[2::2]), f"a write to {path} is not all recorded"
        data = b"".join(map(_plain, pieces[1::2]))[:done]
        assert len(data) == done
        if path == STAMPS:
            self._calls += [Call("stamp", data=line) for line in data.splitlines()]
            return
        if name in {"write", "writev"}:
            at = self._cursors.get(path, 0)
            self._cursors[path] = at + done
        else:
            numbers = arguments.removesuffix(b", 0") if name == "pwritev2" else arguments
            at = int(numbers.rpartition(b", ")[2])
        self._calls.append(Call("write", path, at=at, data=data))

    def _resize(self, name: str, path: str | None, arguments: bytes) -> None:
        numbers = [int(each) for each in re.findall(rb", (\d+)", arguments)]
        if name == "fallocate":
            assert path is not None
            assert numbers[0] == 0, "another mode of fallocate"
            self._calls.append(Call("reserve", path, at=numbers[1] + numbers[2]))
        elif (path := path or self._paths(arguments)[0]) is not None:
            self._calls.append(Call("resize", path, at=numbers[-1]))

    def _change_names(self, name: str, paths: list[str | None], began: int) -> None:
        path, to = paths[0], paths[-1]
        if path is None or to is None:
            assert path is to, f"{name} of {path} to {to}: across the edge of what is recorded"
            return
        what = _OF_NAMES[name]
        if path in self._folders and what == "unlink":  # unlinkat with AT_REMOVEDIR
            what = "rmdir"
        self._note(Call(what, path, to if what in {"rename", "link"} else ""), began)
        if what == "mkdir":
            self._folders.add(path)
        if what in {"unlink", "rename"}:
            self._names.discard(path)
        if what in {"rename", "link"}:
            self._names.add(to)

    def _note(self, call: Call, began: int) -> None:
        """Put a change of names where it took effect, which may be before others that were seen to end before it:
        another thread may have used a folder already, emptied it, removed it, or made it anew."""
        since = range(began, len(self._calls))
        match call.what:
            case "mkdir":
                inside = f"{call.path}/"
                gone = [at + 1 for at in since if self._calls[at] == Call("rmdir", call.path)]
                since = range(gone[-1] if gone else began, len(self._calls))
                overtook = [at for at in since if any(each.startswith(inside) for each in self._calls[at][1:3])]
            case "rmdir":
                overtook = [at for at in since if self._calls[at] == Call("mkdir", call.path)]
            case _:
                folder = (call.to or call.path).rpartition("/")[0]
                overtook = [at for at in since if self._calls[at] == Call("rmdir", folder)]
        at = overtook[0] if overtook else len(self._calls)
        self._calls.insert(at, call)
        for number in range(at + 1, len(self._calls)):
            if self._calls[number].began > at:
                self._calls[number] = self._calls[number]._replace(began=self._calls[number].began + 1)
        for thread, (said, ended) in self._begun.items():
            if ended > at:
                self._begun[thread] = said, ended + 1
