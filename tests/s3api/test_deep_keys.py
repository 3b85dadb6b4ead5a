"""Keys of hundreds of levels, beside what other clients do."""

from __future__ import annotations

import asyncio

import pytest

from gateway.engine.types import DeleteOne
from gateway.errors import CommitterGone, NoSuchBucket
from gateway.journal.codec import RECORD_CODEC
from gateway.journal.records.tree import DirDeleted, NamePut
from tests.s3api.conftest import ALICE, BOB, Site

DEEP = "a/" * 500
KEYS = [f"{n}/{DEEP}k" for n in range(24)]


def batches(site: Site, after: int) -> list[str]:
    """What each batch behind record *after* did: "d" for removed directories, "p" for puts."""
    rows = site.engine._store.query("SELECT records FROM journal WHERE number > ? ORDER BY number", (after,))
    found = []
    for (packed,) in rows:
        kinds = {type(record) for record in RECORD_CODEC.unpack(packed)}
        found.append(("d" if DirDeleted in kinds else "") + ("p" if NamePut in kinds else ""))
    return found


async def test_many_deep_keys_are_deleted_while_another_client_writes(site: Site) -> None:
    alice, bob = site.boto(), site.boto(*BOB)
    await site.call(alice.create_bucket, Bucket="deep")
    await site.call(bob.create_bucket, Bucket="bobs")
    for key in KEYS:
        await site.store(key.encode(), b"", "deep")
    before = site.engine._store.head()
    done = asyncio.Event()

    async def write() -> int:
        written = 0
        while not done.is_set():
            await site.call(bob.put_object, Bucket="bobs", Key=f"dir/{written}", Body=b"x")
            written += 1
        return written

    writing = asyncio.create_task(write())
    wanted = {"Objects": [{"Key": key} for key in [*KEYS, "none/such"]]}
    outcome = await site.call(alice.delete_objects, Bucket="deep", Delete=wanted)
    done.set()
    assert await writing > 0
    assert [each["Key"] for each in outcome["Deleted"]] == [*KEYS, "none/such"]
    assert "Errors" not in outcome
    assert await site.keys("deep") == []
    did = batches(site, before)
    removals = [at for at, each in enumerate(did) if "d" in each]
    assert len(removals) >= 4, "the request was one batch"
    assert any("p" in each for each in did[removals[0] : removals[-1] + 1]), "the other client waited for all of it"


async def test_a_deletion_that_is_cut_short_says_which_keys_are_left(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = site.caller(ALICE[0])
    await site.call(site.boto().create_bucket, Bucket="deep")
    sends = 0
    send = site.engine._send

    async def failing(command: object) -> object:
        nonlocal sends
        sends += 1
        if sends > 5:
            raise CommitterGone("nobody commits")
        return await send(command)

    monkeypatch.setattr(site.engine, "_send", failing)
    wanted = [DeleteOne(key.encode()) for key in KEYS]
    outcomes = await site.engine.delete_many(caller, "deep", wanted)
    assert len(outcomes) == len(wanted)
    assert [isinstance(each, CommitterGone) for each in outcomes] == [False] * 5 + [True] * (len(wanted) - 5)
    with pytest.raises(CommitterGone):
        await site.engine.delete_many(caller, "deep", wanted)


async def test_a_deletion_in_a_bucket_that_does_not_exist_is_refused_as_a_whole(site: Site) -> None:
    with pytest.raises(NoSuchBucket):
        await site.engine.delete_many(site.caller(ALICE[0]), "nowhere", [DeleteOne(key.encode()) for key in KEYS])


async def test_a_key_that_is_named_often_in_one_deletion_is_deleted_as_often_and_in_order(site: Site) -> None:
    s3 = site.boto()
    await site.call(s3.create_bucket, Bucket="deep")
    versioning = {"Status": "Enabled"}
    await site.call(s3.put_bucket_versioning, Bucket="deep", VersioningConfiguration=versioning)
    caller = site.caller(ALICE[0])
    key = KEYS[0].encode()
    outcomes = await site.engine.delete_many(caller, "deep", [DeleteOne(key)] * 4)
    made = [each.version for each in outcomes]
    versions = await site.engine.list_versions(caller, "deep")
    assert [each.version for each in versions.versions] == made[::-1]
