"""The journal alone makes the truth: replaying it into an empty store gives the same tables, whatever happened."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.journal.columns import checksum_kind
from gateway.journal.history.replay import replay, verify
from gateway.journal.records import RECORDS
from gateway.journal.records.site import ChainBegun
from gateway.journal.sqlite.store import SqliteStore
from gateway.journal.store import Store
from gateway.journal.tables import (
    BUCKET,
    DELETED_BUCKET,
    ENTRY,
    FILE,
    TABLES,
    UPLOAD,
    VERSION,
    Bucket,
    DeletedBucket,
    Entry,
    File,
    Upload,
    UploadState,
    Version,
)
from tests.journal.histories import History
from tests.journal.memory_store import MemoryStore
from tests.journal.steps import STEPS


def assert_same_truth(store: Store, other: Store) -> None:
    for table in TABLES:
        if table.truth:
            assert list(store.dump(table)) == list(other.dump(table)), table.name


def assert_names_remember_their_nodes(store: Store) -> None:
    """What a name shows is its node's, unless the node says that it was written in place."""
    files = {file[0]: File._make(file) for file in store.dump(FILE)}
    names = [*map(Entry._make, store.dump(ENTRY)), *map(Version._make, store.dump(VERSION))]
    for name in names:
        file = files.get(name.node)
        shown = (name.size, name.etag, name.owner, name.checksum)
        if file is None:
            assert shown == (0, "", 0, b"")
        elif not file.rewritten:
            assert shown == (file.size, file.etag, file.owner, checksum_kind(file.checksums))
            assert file.written_ns <= name.modified_ns


def assert_no_upload_is_lost(store: Store) -> None:
    """Every open upload is counted by its own bucket, or by the row of the one that is gone."""
    buckets = [*map(Bucket._make, store.dump(BUCKET)), *map(DeletedBucket._make, store.dump(DELETED_BUCKET))]
    counted = {(bucket.name, bucket.id): bucket.uploads for bucket in buckets}
    found: Counter[tuple[str, int]] = Counter()
    for upload in map(Upload._make, store.dump(UPLOAD)):
        if upload.state == UploadState.OPEN:
            found[upload.bucket, max(made for name, made in counted if name == upload.bucket and made < upload.id)] += 1
    assert found == Counter(counted)
    assert all(gone.uploads for gone in map(DeletedBucket._make, store.dump(DELETED_BUCKET)))


def test_a_long_history_of_every_record_replays_into_the_same_truth_on_every_store(tmp_path: Path) -> None:
    tags: set[int] = set()
    for seed in range(4):
        store = SqliteStore(tmp_path / f"{seed}.db")
        history = History(store, seed, cache_rows=150)
        history.run(250)
        tags |= history.tags
        assert_same_truth(store, history.shown)
        assert_names_remember_their_nodes(store)
        assert_no_upload_is_lost(store)
        in_memory, on_disk = MemoryStore(), SqliteStore(tmp_path / f"{seed}-again.db")
        assert replay(store, in_memory) == replay(store, on_disk, rows_max=100) == verify(store)
        assert_same_truth(store, in_memory)
        assert_same_truth(store, on_disk)
        store.close(), on_disk.close()
    begins = {ChainBegun.TAG}  # the first record of a journal, or none of it
    missing = [RECORDS[tag].__name__ for tag in RECORDS if tag not in tags | begins]
    assert not missing, f"no history had these records: {missing}"


steps = st.lists(st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 2**32)), max_size=8), max_size=60)


@settings(max_examples=40)
@given(steps)
@example([[("put", seed), ("compact", seed)] for seed in range(30)])
@example([[("upload", seed), ("bucket_itself", seed), ("cut_uploads_off", seed)] for seed in range(60)])
def test_any_history_replays_into_the_same_truth(batches: list[list[tuple[str, int]]]) -> None:
    history = History(MemoryStore(), 0, cache_rows=60)
    for batch in batches:
        commands = []
        for name, seed in batch:
            history.random = random.Random(seed)
            commands.append(STEPS[name](history))
        history.batch([command for command in commands if command is not None])
    again = MemoryStore()
    assert replay(history.store, again) == verify(history.store)
    assert_same_truth(history.store, again)
    assert_same_truth(history.store, history.shown)
    assert_names_remember_their_nodes(history.store)
    assert_no_upload_is_lost(history.store)
