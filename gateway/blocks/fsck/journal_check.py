"""The check of the journal: its chain of hashes, and, on demand, its tables against a replay. Runs in a thread."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from gateway.blocks.fsck.findings import FsckReport, Severity
from gateway.blocks.protocols import Progress
from gateway.errors import Corrupted
from gateway.journal.history import chain
from gateway.journal.history.table_diff import differences

TELL_EVERY = 1_000
"""Batches between two words on the progress."""


def check_journal(path: Path, report: FsckReport, progress: Progress, *, replay: bool) -> None:
    """See that every record in the file at *path* is what was written, and that its pages are sound; with *replay*,
    that all tables are what the records make. *progress* is told in this thread, and may raise to end the check."""
    sound, batches = True, 0

    def told(done: int, total: int) -> None:
        nonlocal batches
        batches += 1
        if done == total or batches % TELL_EVERY == 0:
            progress("records", done, total)
        report.counted["records"] = done

    for number, fault in chain.faults(path, told):
        sound = False
        report.add(Severity.WRONG, "journal-damaged", f"record {number}", fault)
    if wrong := chain.malformed(path):
        report.add(Severity.WRONG, "file-malformed", str(path), wrong)
    if replay:
        _check_replay(path, report, progress, sound=sound)


def _check_replay(path: Path, report: FsckReport, progress: Progress, *, sound: bool) -> None:
    if not sound:
        report.add(
            Severity.WRONG, "replay-impossible", "the journal", "it is damaged, so no replay of it says anything"
        )
        return
    try:
        for found in differences(path, progress):
            key = " ".join(map(repr, found.key))
            report.add(Severity.WRONG, "replay-differs", f"{found.table} {key}", found.sentence)
    except Corrupted as error:
        report.add(Severity.WRONG, "replay-impossible", "the journal", str(error))
    except sqlite3.Error as error:
        report.add(Severity.WRONG, "replay-impossible", "the journal", f"a table cannot be read: {error}")
