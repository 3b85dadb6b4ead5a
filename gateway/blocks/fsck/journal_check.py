"""The check of the journal: its chain of hashes, its pages, and, on request, its tables against a replay.

Runs in a thread."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from gateway.blocks.fsck.findings import FsckReport, Severity
from gateway.blocks.protocols import Progress
from gateway.errors import Corrupted
from gateway.journal.history import chain
from gateway.journal.history.table_diff import differences

PROGRESS_EVERY = 1_000
"""Batches between two calls of the progress."""


def check_journal(path: Path, report: FsckReport, progress: Progress, *, replay: bool) -> None:
    """Check that every record in the file at *path* is what was written, and that the file's pages are sound.

    *replay*: also check that all tables are what a replay of the records makes. *progress* is called in this thread,
    and may raise to end the check."""
    is_sound, batches = True, 0

    def count(done: int, total: int) -> None:
        nonlocal batches
        batches += 1
        if done == total or batches % PROGRESS_EVERY == 0:
            progress("records", done, total)
        report.counted["records"] = done

    for number, fault in chain.faults(path, count):
        is_sound = False
        report.add(Severity.WRONG, "journal-damaged", f"record {number}", fault)
    if malformed := chain.malformed(path):
        report.add(Severity.WRONG, "file-malformed", str(path), malformed)
    if replay:
        _check_replay(path, report, progress, is_sound=is_sound)


def _check_replay(path: Path, report: FsckReport, progress: Progress, *, is_sound: bool) -> None:
    if not is_sound:
        what = "its records are damaged, so a replay of them proves nothing"
        report.add(Severity.WRONG, "replay-impossible", "the journal", what)
        return
    try:
        for difference in differences(path, progress):
            key = " ".join(map(repr, difference.key))
            report.add(Severity.WRONG, "replay-differs", f"{difference.table} {key}", difference.sentence)
    except Corrupted as error:
        report.add(Severity.WRONG, "replay-impossible", "the journal", str(error))
    except sqlite3.Error as error:
        report.add(Severity.WRONG, "replay-impossible", "the journal", f"a table cannot be read: {error}")
