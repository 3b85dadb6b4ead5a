"""Records what must replay for good: `python -m tests.journal.recording`, once a release that adds records.

`journal-N.bin` is a journal that was really written, `journal-N.json` what its replay gave, `records.json` each tag
with its fields. A test replays every journal that was ever recorded here, so none of these files is ever replaced.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import tempfile
import typing
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import msgpack

from gateway.journal.records import RECORDS
from gateway.journal.sqlite.store import SqliteStore
from gateway.journal.store import JournalRow, Store
from gateway.journal.tables import TABLES

FOLDER = Path(__file__).parent / "fixtures"
RECORDED = FOLDER / "records.json"
RENAMED = {
    "UserGone": "UserDeleted",
    "AccessKeyGone": "AccessKeyDeleted",
    "BucketGone": "BucketDeleted",
    "BucketLeftUploads": "BucketDeletedWithUploads",
    "DirGone": "DirDeleted",
    "VersionGone": "VersionDeleted",
    "TakenApart": "ContentReleased",
    "UploadsCutOff": "UploadsAborted",
    "PartFact": "PartSummary",
}
"""Classes that have another name in Python than in `records.json`. The tag of a record decides what it is."""


def current_names(text: str) -> str:
    """Replace the recorded names of classes in *text* by their names in Python."""
    return re.sub(r"\w+", lambda name: RENAMED.get(name[0], name[0]), text)


def fields_of(cls: type[Any]) -> list[list[str]]:
    """Name and type of each field, and whether it has a default. The module of a type is left out."""
    hints = typing.get_type_hints(cls)
    return [
        [
            field.name,
            re.sub(r"\bgateway[\w.]*\.", "", str(hints[field.name])),
            "required" if field.default is MISSING else "default",
        ]
        for field in fields(cls)
    ]


def digest(store: Store, table: Any, columns: Sequence[str]) -> str:
    """BLAKE2b over these columns of all rows: what a later column adds does not change it."""
    at = [table.row._fields.index(name) for name in columns]
    hashed = hashlib.blake2b(digest_size=16)
    for row in store.dump(table):
        hashed.update(msgpack.packb([row[each] for each in at]))
    return hashed.hexdigest()


def recorded_batches(path: Path) -> Iterator[JournalRow]:
    with path.open("rb") as packed:
        for row in msgpack.Unpacker(packed, use_list=False):
            yield JournalRow._make(row)


def record() -> None:
    from tests.journal.histories import History

    number = len(list(FOLDER.glob("journal-*.bin"))) + 1
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore(Path(folder) / "journal.db")
        History(store, number).run(400)
        with (FOLDER / f"journal-{number}.bin").open("wb") as out:
            for row in store.batches():
                out.write(msgpack.packb(row))
        tables = {
            table.name: {"columns": table.row._fields, "digest": digest(store, table, table.row._fields)}
            for table in TABLES
            if table.truth
        }
        head = store.head()
        result = {"number": head.number, "hash": head.hash.hex(), "tables": tables}
        (FOLDER / f"journal-{number}.json").write_text(json.dumps(result, indent=1) + "\n")
        store.close()
    known = {str(tag): [RECORDS[tag].__name__, fields_of(RECORDS[tag])] for tag in sorted(RECORDS)}
    RECORDED.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(record())
