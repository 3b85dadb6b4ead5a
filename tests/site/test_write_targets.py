"""Several backends and policies under one site: where what is written goes, and what a backend that is away breaks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from backends.base import Marker
from gateway.engine.types import NO_CONDITIONS, Body, Buffer, ByteRange, Caller, ExpectedDigests, ObjectMeta, WantedPart
from gateway.errors import Misconfigured, Unavailable
from gateway.site.site import Site
from tests.endpoint import run_entrepot
from tests.site.running import change_config
from tests.waiting import until_true

MORE = """
[backends.vault]
type = "local"
cluster = "home"
path = "{vault}"
[policies.safe]
ack = ["disk", "vault"]
keep = ["disk", "vault"]
[policies.far]
ack = ["vault"]
keep = ["vault"]
[[rules]]
policy = "safe"
bucket = "tree"
prefix = "safe/"
[[rules]]
policy = "far"
min_bytes = "1 KiB"
[[rules]]
policy = "safe"
user = "nobody-yet"
"""


class Bytes(Body):
    def __init__(self, data: bytes) -> None:
        self._data = data

    async def __aiter__(self) -> AsyncIterator[Buffer]:  # type: ignore[override]
        yield self._data


@pytest.fixture
def folder(tmp_path: Path, new_folder: Path) -> Path:
    """A site whose config was edited since it was made; nobody serves it."""
    with (new_folder / "entrepot.toml").open("a") as config:
        config.write(MORE.format(vault=tmp_path / "vault"))
    return new_folder


@pytest.fixture
async def site(folder: Path) -> AsyncIterator[Site]:
    async with await Site.open(folder) as opened:
        yield opened


async def root(site: Site) -> Caller:
    row = site.store.query_one("SELECT k.access_key FROM access_key k JOIN user u ON u.name = k.user WHERE u.root = 1")
    credential = site.engine.credential(row[0])
    assert credential is not None
    if not site.store.query("SELECT 1 FROM bucket"):
        await site.engine.create_bucket(credential[1], "tree", "")
    return credential[1]


async def put(site: Site, key: str, data: bytes, *, told: bool = True) -> None:
    promised = ExpectedDigests(size=len(data)) if told else ExpectedDigests()
    await site.engine.put(await root(site), "tree", key.encode(), Bytes(data), promised, ObjectMeta())


async def get(site: Site, key: str) -> bytes:
    opened = await site.engine.open(await root(site), "tree", key.encode())
    if opened.whole is not None:
        return bytes(opened.whole)
    return b"".join([bytes(piece) async for piece in opened.chunks])


def policies(site: Site) -> list[str]:
    """Of every run, in the order in which they were written."""
    return [
        name for (name,) in site.store.query("SELECT p.name FROM run r JOIN policy p ON p.id = r.policy ORDER BY r.id")
    ]


async def held(site: Site, name: str) -> set[str]:
    (row,) = site.store.query("SELECT id FROM backend WHERE name = ?", (name,))
    return {line.key async for line in site.storage.backends[row[0]].list()}


async def test_what_the_config_names_anew_is_named_and_claimed_when_the_site_is_opened(site: Site) -> None:
    names = dict(site.store.query("SELECT name, id FROM backend"))
    assert set(names) == {"disk", "vault"}
    marker = await site.storage.backends[names["vault"]].marker()
    assert marker is not None
    assert marker.without_fence == Marker(site.id, names["vault"], site.incarnation)
    assert {name for (name,) in site.store.query("SELECT name FROM policy")} == {"default", "safe", "far"}


async def test_rules_say_where_writes_go(site: Site) -> None:
    await put(site, "small", b"x")
    assert (len(await held(site, "disk")), len(await held(site, "vault"))) == (1, 0)
    await put(site, "large", b"x" * 1024)
    assert (len(await held(site, "disk")), len(await held(site, "vault"))) == (1, 1)
    await put(site, "safe/large", b"x" * 1024)
    assert (len(await held(site, "disk")), len(await held(site, "vault"))) == (2, 2)
    await put(site, "unknown", b"x", told=False)
    assert policies(site) == ["default", "far", "safe", "far"]
    for key, size in (("small", 1), ("large", 1024), ("safe/large", 1024), ("unknown", 1)):
        assert await get(site, key) == b"x" * size
    assert not site.store.query("SELECT 1 FROM block WHERE policy NOT IN (SELECT policy FROM run)")


async def test_what_is_written_anew_stays_where_it_is_once_the_config_lacks_its_policy(site: Site) -> None:
    write_targets, topology = site.storage.write_targets, site.storage.topology
    ids = dict(site.store.query("SELECT name, id FROM backend"))
    ((safe,),) = site.store.query("SELECT id FROM policy WHERE name = 'safe'")
    assert {each.id for each in write_targets.of(safe, {ids["disk"]}).copies} == set(ids.values())
    rest = {name: policy for name, policy in topology.policies.items() if name != "safe"}
    write_targets.set_topology(replace(topology, policies=rest, rules=()))
    targets = write_targets.of(safe, set(ids.values()))
    assert (targets.policy, {each.id for each in targets.copies}) == (safe, set(ids.values()))
    assert [each.id for each in write_targets.of(safe, {ids["vault"]}).copies] == [ids["vault"]]
    for nowhere in (set(), {ids["disk"], 99}):
        with pytest.raises(Unavailable, match="nothing can be rewritten"):
            write_targets.of(safe, nowhere)


async def test_parts_count_as_large(site: Site) -> None:
    caller = await root(site)
    upload = await site.engine.create_upload(caller, "tree", b"parts", ObjectMeta(), "", "")
    part = await site.engine.put_part(caller, "tree", b"parts", upload, 1, Bytes(b"x"), ExpectedDigests(size=1))
    await site.engine.complete_upload(caller, "tree", b"parts", upload, [WantedPart(1, part.etag)])
    assert policies(site) == ["far"]


async def test_a_copy_under_the_same_policy_shares_bytes_and_under_another_stores_them_anew(site: Site) -> None:
    caller = await root(site)
    await put(site, "one", b"plain")
    before = await held(site, "disk")

    async def copy(source: str, target: str) -> str:
        stored, _ = await site.engine.copy(
            caller, "tree", source.encode(), None, NO_CONDITIONS, "tree", target.encode(), None, None
        )
        return stored.etag

    etag = await copy("one", "two")
    assert (await held(site, "disk"), await held(site, "vault")) == (before, set())
    assert await copy("one", "safe/one") == etag
    assert len(await held(site, "vault")) == 1
    assert policies(site) == ["default", "safe"]
    assert await get(site, "safe/one") == b"plain"
    await copy("safe/one", "back")
    assert policies(site) == ["default", "safe", "default"]


async def test_a_part_that_is_copied_from_another_policy_is_stored_anew(site: Site) -> None:
    caller = await root(site)
    await put(site, "one", b"0123456789")
    upload = await site.engine.create_upload(caller, "tree", b"safe/parts", ObjectMeta(), "", "")
    part, _, _ = await site.engine.copy_part(
        caller, "tree", b"safe/parts", upload, 1, "tree", b"one", None, ByteRange(2, 5)
    )
    await site.engine.complete_upload(caller, "tree", b"safe/parts", upload, [WantedPart(1, part.etag)])
    assert await get(site, "safe/parts") == b"2345"
    assert policies(site) == ["default", "safe"]


async def test_a_backend_that_is_away_fails_only_those_writes_that_need_it(folder: Path, tmp_path: Path) -> None:
    async with await Site.open(folder) as site:
        await put(site, "large", b"x" * 1024)
    (tmp_path / "vault").rename(tmp_path / "elsewhere")
    (tmp_path / "vault").write_text("no folder")
    async with await Site.open(folder) as site:
        assert set(site.storage.pending()) == {"vault"}
        await put(site, "small", b"x")
        with pytest.raises(Unavailable, match="vault"):
            await put(site, "safe/small", b"x")
        (tmp_path / "vault").unlink()
        (tmp_path / "elsewhere").rename(tmp_path / "vault")
        await until_true(lambda: not site.storage.pending())
        await put(site, "safe/small", b"x")
        assert await get(site, "large") == b"x" * 1024


async def test_a_place_that_lost_its_marker_is_not_taken_for_a_new_one(folder: Path, tmp_path: Path) -> None:
    async with await Site.open(folder):
        pass
    (tmp_path / "vault").rename(tmp_path / "elsewhere")
    (tmp_path / "vault").mkdir()
    async with await Site.open(folder) as site:
        assert "there is no backend in this folder" in site.storage.pending()["vault"]


async def test_a_site_of_which_every_write_needs_a_backend_that_is_away_is_not_opened(folder: Path) -> None:
    (folder / "blocks").rename(folder / "elsewhere")
    (folder / "blocks").mkdir()
    change_config(folder, 'ack = ["vault"]\nkeep = ["vault"]', 'ack = ["disk"]\nkeep = ["disk"]')
    with pytest.raises(Misconfigured, match=r"disk.*there is no backend in this folder; is its disk mounted"):
        await Site.open(folder)


async def test_backends_are_listed_also_where_no_write_could_be_answered(folder: Path, tmp_path: Path) -> None:
    async with await Site.open(folder):
        pass
    for name in (folder / "blocks", tmp_path / "vault"):
        name.rename(name.with_name("gone-" + name.name))
        name.write_text("no folder")
    told = json.loads(
        (await asyncio.to_thread(run_entrepot, "backend", "list", "--site", str(folder), "--json")).stdout
    )
    assert {row["name"] for row in told} == {"disk", "vault"}


async def test_a_new_backend_that_cannot_be_claimed_yet_is_used_once_it_was(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "vault").write_text("no folder")
    async with await Site.open(folder) as site:
        await put(site, "small", b"x")
        with pytest.raises(Unavailable, match=r"not claimed|could not be opened"):
            await put(site, "safe/small", b"x")
    (tmp_path / "vault").unlink()
    async with await Site.open(folder) as site:
        await put(site, "safe/small", b"x")
        assert len(await held(site, "vault")) == 1
