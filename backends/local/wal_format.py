"""The format of an intake log: a preallocated file of checksummed records. Knows nothing of folders or threads.

    0     two header slots of 4 KiB: magic, generation, CRC32C. A reset writes the next generation into the slot that
    4096  does not hold the present one, so that a torn write of it leaves the old header in force.
    8192  records of that generation. Each group of records begins on a page of its own, so that writing a group
          never touches a page that holds an acknowledged one; within a group they follow each other.

    record: magic, kind, key's length, value's length, generation, own offset, value's CRC32C, CRC32C of all this
            and the key; then key, value, padding to 8 bytes

The file is filled with zeros and synced when it is made, so that overwriting it changes no metadata and making a
group durable is one write and one flush. (O_DIRECT with O_DSYNC was tried instead: between nothing and a tenth
faster.)
Generation and offset in each record tell those of before the last reset from those after.
Reading stops at the first page that does not begin with a valid record. A group whose sync failed was acknowledged
to nobody and is overwritten by the next; what shows of it behind that one may be read back as a value that nobody
knows, which a sweep finds.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from awscrt import checksums

from backends import crash_points
from backends.base import Buffer, crc32c_of
from backends.local.files import read_all, write_all

PAGE = 4096
START = 2 * PAGE
PUT, DELETED = 1, 2
_HEADER = struct.Struct("<8sQI")
_HEADER_MAGIC = b"EntrIntk"
_RECORD = struct.Struct("<IBxHIQQII")
_RECORD_MAGIC = 0x4B4E5449
_ZEROS = bytes(1 << 20)


class WalEntry(NamedTuple):
    """What is to be logged: a value put, or (`DELETED`, no value) that a key is gone."""

    kind: int
    key: str
    value: Sequence[Buffer]
    size: int  # bytes of the value
    crc32c: int


class StoredWalEntry(NamedTuple):
    """A record found in a log. Its value lies at *at*; whether it fits *crc32c* is seen when it is read."""

    kind: int
    key: str
    at: int
    size: int
    crc32c: int


class WalFile:
    """One intake log, open for reading and writing by its one owner. All methods block."""

    def __init__(self, fd: int) -> None:
        """*fd* reads and writes (or only reads, for who only looks). It stays the caller's to close."""
        self._fd = fd
        self.size = os.fstat(fd).st_size
        self.generation, self._slot = self._read_header()
        self._next = START

    @classmethod
    def make(cls, fd: int, size: int, generation: int) -> WalFile:
        """Fill the empty file *fd* with *size* bytes and make it an empty log of *generation*, durably."""
        for at in range(0, size, len(_ZEROS)):
            write_all(fd, [_ZEROS[: size - at]], at)
        write_all(fd, [_pack_header(generation)], 0)
        os.fsync(fd)
        return cls(fd)

    @property
    def valid(self) -> bool:
        """False for a file whose making was cut short: it never held a record."""
        return self.generation >= 0

    @property
    def empty(self) -> bool:
        return self._next == START

    def room(self) -> int:
        """Bytes left for records."""
        return self.size - self._next

    def append(self, group: Sequence[WalEntry]) -> None:
        """Make the records of *group* durable, with one flush. They must fit in `room`.

        Raises `OSError`; then the log is as it was.
        """
        buffers: list[Buffer] = []
        at = self._next
        for entry in group:
            key = entry.key.encode()
            head = _pack_record(entry, key, self.generation, at)
            pad = -(len(head) + entry.size) % 8
            buffers += (head, *entry.value, bytes(pad))
            at += len(head) + entry.size + pad
        end = _page_up(at)
        buffers.append(bytes(end - at))
        write_all(self._fd, buffers, self._next)
        crash_points.reach("log-written")
        os.fdatasync(self._fd)
        self._next = end

    def reset(self, generation: int) -> None:
        """Forget all records, durably: what they said must be durable elsewhere. *generation* exceeds the old."""
        slot = 1 - self._slot
        write_all(self._fd, [_pack_header(generation)], PAGE * slot)
        os.fdatasync(self._fd)
        self.generation, self._slot = generation, slot
        self._next = START

    def discard(self) -> None:
        """Give the space back. The log, which must hold nothing, is none any more."""
        os.ftruncate(self._fd, 0)

    def holds_records(self) -> bool:
        """Whether there is a record of this generation, whoever wrote it."""
        return next(self.records(), None) is not None

    def records(self) -> Iterator[StoredWalEntry]:
        """The records of this generation, in the order in which they were appended."""
        at = START
        while at < self.size:
            found = self._read_record(at)
            if found is None and at % PAGE:
                at = _page_up(at)
                found = self._read_record(at)
            if found is None:
                return
            yield found
            at = found.at + found.size
            at += -at % 8

    def value(self, found: StoredWalEntry) -> Buffer | None:
        """The value of a record; None where it is damaged, so that it was never acknowledged."""
        value = read_all(self._fd, found.at, found.size)
        return value if crc32c_of([value]) == found.crc32c and len(value) == found.size else None

    def _read_header(self) -> tuple[int, int]:
        """(generation, slot) of the header in force; (-1, 1) if there is none."""
        best = (-1, 1)
        for slot in (0, 1):
            raw = os.pread(self._fd, _HEADER.size, PAGE * slot)
            if len(raw) == _HEADER.size:
                magic, number, crc = _HEADER.unpack(raw)
                if magic == _HEADER_MAGIC and crc == checksums.crc32c(raw[:-4]):
                    best = max(best, (number, slot))
        return best

    def _read_record(self, at: int) -> StoredWalEntry | None:
        raw = os.pread(self._fd, _RECORD.size + 1024, at)
        if len(raw) < _RECORD.size:
            return None
        magic, kind, key_length, size, generation, own, crc, check = _RECORD.unpack_from(raw)
        key = raw[_RECORD.size : _RECORD.size + key_length]
        if (magic, generation, own) != (_RECORD_MAGIC, self.generation, at) or len(key) != key_length:
            return None
        if check != checksums.crc32c(key, checksums.crc32c(raw[: _RECORD.size - 4])):
            return None
        return StoredWalEntry(kind, key.decode(), at + _RECORD.size + key_length, size, crc)


def bytes_needed(key: str, size: int) -> int:
    """At most so many bytes of a log does a record take, its share of the group's padding aside."""
    return _RECORD.size + len(key) + size + 8


def _page_up(at: int) -> int:
    return at + -at % PAGE


def _pack_header(generation: int) -> bytes:
    raw = _HEADER.pack(_HEADER_MAGIC, generation, 0)[:-4]
    return raw + struct.pack("<I", checksums.crc32c(raw))


def _pack_record(entry: WalEntry, key: bytes, generation: int, at: int) -> bytes:
    raw = _RECORD.pack(_RECORD_MAGIC, entry.kind, len(key), entry.size, generation, at, entry.crc32c, 0)[:-4]
    return raw + struct.pack("<I", checksums.crc32c(key, checksums.crc32c(raw))) + key
