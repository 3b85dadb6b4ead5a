"""Opening objects: what one look at the journal tells, and what is read with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.blocks.inline.values import InlineValues
from gateway.namespace.read import lookups
from tests.engine.bodies import get, put
from tests.new_sites import committer_in_thread, new_site


async def test_the_look_up_of_a_small_object_tells_the_block_that_it_lies_in(site, engine, root):
    await put(engine, root, b"deep/in/the/tree", b"x" * 4096)
    found = lookups.find(site.store, "tree", b"deep/in/the/tree")
    (row,) = site.store.query("SELECT ring_key, size, backends FROM block")
    assert found.block == row


@pytest.fixture
def new_folder(disk_path: Path) -> Iterator[Path]:
    """A new site on a disk: what the page cache of a disk's file system holds is read without waiting."""
    folder = new_site(disk_path / "site")
    with committer_in_thread(folder):
        yield folder


async def test_an_object_without_bytes_lies_in_no_block(site, engine, root):
    await put(engine, root, b"empty", b"")
    assert lookups.find(site.store, "tree", b"empty").block is None
    assert await get(engine, root, b"empty") == b""


async def test_a_small_object_is_read_with_one_question_to_the_journal(site, engine, root, monkeypatch):
    monkeypatch.setattr(InlineValues, "attach", lambda *_: False)  # its bytes would be a second one
    await put(engine, root, b"small", b"y" * 4096)
    assert await get(engine, root, b"small") == b"y" * 4096
    asked = []
    query = site.store.query
    monkeypatch.setattr(site.store, "query", lambda *question: asked.append(question) or query(*question))
    opened = await engine.open(root, "tree", b"small")
    assert bytes(opened.whole) == b"y" * 4096
    assert len(asked) == 1


async def test_who_only_wants_to_know_of_an_object_is_told_the_same(engine, root):
    await put(engine, root, b"small", b"y" * 4096)
    opened, headed = await engine.open(root, "tree", b"small"), await engine.head(root, "tree", b"small")
    assert headed.info == opened.info
    assert headed.info.checksum is not None
