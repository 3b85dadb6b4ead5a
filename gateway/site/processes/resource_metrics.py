"""Metrics of what the processes of a site use: memory, processor time, and space on disks."""

from __future__ import annotations

import asyncio
import os
import platform
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gateway import __version__
from gateway.journal.paths import JournalPaths
from gateway.metrics import counter, gauge

if TYPE_CHECKING:
    from gateway.site.site import Site

BUILD = gauge(
    "entrepot_build_info", "1, with the versions of Entrepot and its parts.", ("entrepot", "python", "sqlite"), "max"
)
MEMORY = gauge("entrepot_process_resident_bytes", "Memory that a process has in RAM.", ("process",))
CPU = counter("entrepot_process_cpu_seconds_total", "Processor time that a process has used.", ("process",))
DISK_FREE = gauge(
    "entrepot_disk_free_bytes", "Space that Entrepot may still use on the disk of the journal or a backend.", ("disk",)
)
DISK_SIZE = gauge("entrepot_disk_size_bytes", "The size of that disk.", ("disk",))
JOURNAL = gauge("entrepot_journal_bytes", "The size of the files of the journal.", ("file",))

JOURNAL_DISK = "journal"
"""The label of the journal's disk. No backend has it: `backend NAME` is the label of a backend's."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_STATM = Path("/proc/self/statm")


def set_build_info() -> None:
    """Set the gauge of the versions. Called by the supervisor, once."""
    BUILD.set(1, __version__, platform.python_version(), sqlite3.sqlite_version)


def measure_process(name: str) -> None:
    """Update the metrics of this process, whose role is *name*. Takes some tens of microseconds."""
    used = os.times()
    CPU.reach(used.user + used.system, name)
    with suppress(OSError, ValueError, IndexError):  # not Linux
        MEMORY.set(int(_STATM.read_text().split()[1]) * _PAGE_BYTES, name)


async def count_disks(site: Site) -> None:
    """Update the metrics of the disks periodically, until cancelled. Runs in the keeper."""
    while True:
        folders = {JOURNAL_DISK: str(site.journal_path)}
        for place in site.storage.topology.backends.values():
            if place.s3 is None:
                folders[f"backend {place.name}"] = place.path
        found = await asyncio.gather(*(asyncio.to_thread(_space, folder) for folder in folders.values()))
        space = {label: each for label, each in zip(folders, found, strict=True) if each is not None}
        DISK_FREE.only({label: free for label, (free, _) in space.items()})
        DISK_SIZE.only({label: size for label, (_, size) in space.items()})
        JOURNAL.only(await asyncio.to_thread(_journal_files, JournalPaths(site.journal_path)))
        await site.timing.clock.sleep(site.timing.probes.copies_seconds)


def _space(folder: str) -> tuple[int, int] | None:
    """Return the free and the total bytes of the disk of *folder*; None if it is not there."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return None
    return disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize


def _journal_files(paths: JournalPaths) -> dict[str, float]:
    files = {"database": paths.database, "log": paths.database.with_name(f"{paths.database.name}-wal")}
    files["reserve"] = paths.reserve
    return {name: _size(path) for name, path in files.items()}


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
