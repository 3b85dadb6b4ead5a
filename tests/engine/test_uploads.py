"""Completing uploads of many parts: in slices, by a committer that goes on with others' work."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.blocks.findings import Report
from gateway.blocks.fsck_tables import check_tables
from gateway.blocks.takedown import Takedown
from gateway.engine import uploads
from gateway.engine.desk import Engine
from gateway.engine.types import Caller, Meta, Promised, WantedPart
from gateway.errors import AccessDenied, Busy, InvalidPart, NoSuchUpload
from gateway.journal.paths import JournalPaths
from gateway.namespace import completing, preparing
from gateway.namespace.completing import CompleteUpload
from gateway.namespace.preparing import CompletePrepared
from gateway.site.site import Site
from gateway.site.upkeep import workers_of
from tests.engine.bodies import Bytes, get


@pytest.fixture(autouse=True)
def few_parts_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that tests need few parts, and small ones."""
    monkeypatch.setattr(uploads, "PARTS_AT_ONCE", 2)
    monkeypatch.setattr(preparing, "GATHERED", 2)
    monkeypatch.setattr(completing, "LEAST_PART_BYTES", 1)


@pytest.fixture
def sent(site: Site, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The commands that complete uploads, as they are sent."""
    found: list[Any] = []
    send = site.journal.send

    async def listed(command: Any) -> Any:
        if isinstance(command, CompleteUpload | CompletePrepared):
            found.append(command)
        return await send(command)

    monkeypatch.setattr(site.journal, "send", listed)
    return found


async def uploaded(engine: Engine, root: Caller, key: bytes, count: int) -> tuple[str, list[WantedPart]]:
    upload = await engine.create_upload(root, "tree", key, Meta(), "", "")
    parts = []
    for number in range(1, count + 1):
        data = b"%d" % number * 1_000
        stored = await engine.put_part(root, "tree", key, upload, number, Bytes(data), Promised(len(data)))
        parts.append(WantedPart(number, stored.etag))
    return upload, parts


def findings(site: Site) -> dict[str, int]:
    report = Report()
    check_tables(JournalPaths(site.journal_path).database, report, lambda done, total: None)
    return dict(report.kinds)


async def test_an_upload_of_many_parts_is_completed_by_a_command_that_looks_at_none(
    site: Site, engine: Engine, root: Caller, sent: list[Any]
) -> None:
    upload, parts = await uploaded(engine, root, b"k", 7)
    named = parts[:3] + parts[4:]
    done = await engine.complete_upload(root, "tree", b"k", upload, named)
    assert [type(each) for each in sent] == [CompletePrepared]
    data = b"".join(b"%d" % number * 1_000 for number in (1, 2, 3, 5, 6, 7))
    assert await get(engine, root, b"k") == data
    assert site.store.query("SELECT count(*) FROM part") == [(7,)]
    assert findings(site) == {}
    assert await engine.complete_upload(root, "tree", b"k", upload, named) == done
    with pytest.raises(NoSuchUpload):
        await engine.complete_upload(root, "tree", b"k", upload, parts)
    takedown = next(each for each in workers_of(site) if isinstance(each, Takedown))
    while site.store.query("SELECT count(*) FROM freed") != [(0,)]:
        await takedown.step()
        assert findings(site) == {}
    assert site.store.query("SELECT count(*) FROM part") == [(0,)]
    assert site.store.query("SELECT count(*) FROM run") == [(6,)]
    assert await get(engine, root, b"k") == data


async def test_what_cannot_be_completed_is_refused_and_stays_open(
    site: Site, engine: Engine, root: Caller, sent: list[Any]
) -> None:
    upload, parts = await uploaded(engine, root, b"k", 3)
    with pytest.raises(InvalidPart):
        await engine.complete_upload(root, "tree", b"k", upload, [*parts, WantedPart(9, "0" * 32)])
    other = root._replace(user="other", user_id=root.user_id + 1, root=False)
    with pytest.raises(AccessDenied):
        await engine.complete_upload(other, "tree", b"k", upload, parts)
    assert sent == []
    await engine.abort_upload(root, "tree", b"k", upload)
    with pytest.raises(NoSuchUpload):
        await engine.complete_upload(root, "tree", b"k", upload, parts)


async def test_parts_that_come_meanwhile_have_the_others_looked_at_anew_and_not_for_ever(
    site: Site, engine: Engine, root: Caller, sent: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    upload, parts = await uploaded(engine, root, b"k", 3)
    gather, left = preparing.gather_parts, [1]

    async def then_a_part_comes(*asked: Any) -> Any:
        found = await gather(*asked)
        if left[0]:
            left[0] -= 1
            await engine.put_part(root, "tree", b"k", upload, 3, Bytes(b"3" * 1_000), Promised(1_000))
        return found

    monkeypatch.setattr(preparing, "gather_parts", then_a_part_comes)
    await engine.complete_upload(root, "tree", b"k", upload, parts)
    assert len(sent) == 2
    assert findings(site) == {}
    upload, parts = await uploaded(engine, root, b"k", 3)
    left[0] = 99
    with pytest.raises(Busy):
        await engine.complete_upload(root, "tree", b"k", upload, parts)
    left[0] = 0
    await engine.complete_upload(root, "tree", b"k", upload, parts)
