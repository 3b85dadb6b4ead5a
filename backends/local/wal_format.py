"""The format of a write-ahead log: a preallocated file of checksummed records. Knows no folders and no threads.

    0     two header slots of 4 KiB: magic, generation, CRC32C. A reset writes the next generation into the slot that
    4096  does not hold the present one, so a torn write leaves the old header valid.
    8192  records of that generation. Each group of records begins on a page of its own, so that writing a group
          never touches a page that holds an acknowledged one; within a group they follow each other.

    record: magic, kind, key's length, value's length, generation, own offset, value's CRC32C, CRC32C of all this
            and the key; then key, value, padding to 8 bytes

The file is filled with zeros and synced when it is made. So overwriting it changes no metadata, and one write and one
flush make a group durable. (O_DIRECT with O_DSYNC was tried instead: between nothing and a tenth faster.)

The generation and the offset in each record distinguish the records after the last reset from those before it.
Reading stops at the first page that does not begin with a valid record. A group whose sync failed was not acknowledged,
and the next group overwrites it. The part of it that is longer than the next group may be read back as a value that the
journal does not know; the sweeper finds such strays.
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
    """What is logged: a value that was put, or (`DELETED`, without a value) that a key was deleted."""

    kind: int
    key: str
    value: Sequence[Buffer]
    size: int  # bytes of the value
    crc32c: int


class StoredWalEntry(NamedTuple):
    """A record as read from a log, without its value, which lies at offset *at* and is verified when it is read."""

    kind: int
    key: str
    at: int
    size: int
    crc32c: int


class WalFile:
    """One write-ahead log, open for reading and writing by its one owner. All methods block."""

    def __init__(self, fd: int) -> None:
        """*fd* is open for reading and writing; reading suffices for `records` and `value`. The caller closes it."""
        self._fd = fd
        self.size = os.fstat(fd).st_size
        self.generation, self._slot = self._read_header()
        self._next = START

    @classmethod
    def make(cls, fd: int, size: int, generation: int) -> WalFile:
        """Make the empty file *fd* an empty log of *size* bytes and of *generation*, durably."""
        for at in range(0, size, len(_ZEROS)):
            write_all(fd, [_ZEROS[: size - at]], at)
        write_all(fd, [_pack_header(generation)], 0)
        os.fsync(fd)
        return cls(fd)

    @property
    def valid(self) -> bool:
        """False for a file that was not made completely: it never held a record."""
        return self.generation >= 0

    @property
    def empty(self) -> bool:
        return self._next == START

    def bytes_left(self) -> int:
        """Return the number of bytes left for records."""
        return self.size - self._next

    def append(self, group: Sequence[WalEntry]) -> None:
        """Make the records of *group* durable, with one flush. They must fit in `bytes_left`.

        Raises `OSError`; the log is unchanged then.
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
        """Remove all records, durably. Their values must be durable elsewhere; *generation* must exceed the old one."""
        slot = 1 - self._slot
        write_all(self._fd, [_pack_header(generation)], PAGE * slot)
        os.fdatasync(self._fd)
        self.generation, self._slot = generation, slot
        self._next = START

    def discard(self) -> None:
        """Return the space to the disk. The log must hold no records; it is not valid afterwards."""
        os.ftruncate(self._fd, 0)

    def holds_records(self) -> bool:
        """Return whether there is a record of this generation, by whichever process."""
        return next(self.records(), None) is not None

    def records(self) -> Iterator[StoredWalEntry]:
        """Yield the records of this generation, in the order in which they were appended."""
        at = START
        while at < self.size:
            entry = self._read_record(at)
            if entry is None and at % PAGE:
                at = _page_up(at)
                entry = self._read_record(at)
            if entry is None:
                return
            yield entry
            at = entry.at + entry.size
            at += -at % 8

    def value(self, entry: StoredWalEntry) -> Buffer | None:
        """Return the value of a record; None where its checksum differs, so that it was never acknowledged."""
        value = read_all(self._fd, entry.at, entry.size)
        return value if crc32c_of([value]) == entry.crc32c and len(value) == entry.size else None

    def _read_header(self) -> tuple[int, int]:
        """Return (generation, slot) of the valid header with the highest generation; (-1, 1) if there is none."""
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
    """Return an upper bound of the bytes that a record takes in a log, without the group's padding."""
    return _RECORD.size + len(key) + size + 8


def _page_up(at: int) -> int:
    return at + -at % PAGE


def _pack_header(generation: int) -> bytes:
    raw = _HEADER.pack(_HEADER_MAGIC, generation, 0)[:-4]
    return raw + struct.pack("<I", checksums.crc32c(raw))


def _pack_record(entry: WalEntry, key: bytes, generation: int, at: int) -> bytes:
    raw = _RECORD.pack(_RECORD_MAGIC, entry.kind, len(key), entry.size, generation, at, entry.crc32c, 0)[:-4]
    return raw + struct.pack("<I", checksums.crc32c(key, checksums.crc32c(raw))) + key
