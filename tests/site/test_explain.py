"""`entrepot explain`: what is said of keys, versions, sizes and users that are there, and of those that are not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.engine.types import ExpectedDigests, ObjectMeta
from gateway.errors import InvalidArgument, NoSuchBucket, NoSuchUser
from gateway.journal.tables import WorkState
from gateway.reconcile.commands import Fail, FailWork, SuspectCopy
from gateway.site import replication_status
from gateway.site.admin.explain import explain, spell
from gateway.site.admin.lost_objects import find_losses
from gateway.site.processes import replication_metrics
from gateway.site.site import Site
from tests.site.test_write_targets import MORE, Bytes, put, root


@pytest.fixture
async def site(tmp_path: Path, new_folder: Path) -> AsyncIterator[Site]:
    with (new_folder / "entrepot.toml").open("a") as config:
        config.write(MORE.format(vault=tmp_path / "vault").replace('user = "nobody-yet"', 'bucket = "elsewhere"'))
    async with await Site.open(new_folder) as opened:
        yield opened


async def test_where_a_key_would_go_depends_on_how_much_is_written(site: Site) -> None:
    await root(site)
    assert explain(site, "s3://tree/new")["would_go"]["policy"] == "far"
    assert "written now in parts: policy far (rules[1]" in "\n".join(spell(explain(site, "s3://tree/new")))
    assert explain(site, "s3://tree/new", size=10)["would_go"]["policy"] == "default"
    await put(site, "there", b"x" * 10)
    told = explain(site, "s3://tree/there")
    assert (told["size"], told["would_go"]["policy"], told["lies"]["groups"][0]["on"]) == (10, "default", ["disk"])
    assert "written now as 10 bytes at once: policy default" in "\n".join(spell(told))
    assert explain(site, "s3://tree/there", size=1 << 20)["would_go"]["policy"] == "far"


async def test_versions_and_delete_markers_are_told_apart(site: Site) -> None:
    caller = await root(site)
    await site.engine.set_versioning(caller, "tree", 1)
    first = await site.engine.put(caller, "tree", b"key", Bytes(b"1"), ExpectedDigests(size=1), ObjectMeta())
    await site.engine.put(caller, "tree", b"key", Bytes(b"22"), ExpectedDigests(size=2), ObjectMeta())
    await site.engine.delete(caller, "tree", b"key")
    told = explain(site, "s3://tree/key")
    assert (told["delete_marker"], told["size"], told["lies"]) == (True, None, None)
    assert "a delete marker (version " in "\n".join(spell(told))
    told = explain(site, "s3://tree/key", version=str(first.version))
    assert (told["size"], told["lies"]["blocks"]) == (1, 1)
    with pytest.raises(InvalidArgument):
        explain(site, "s3://tree/key", version="what?")


async def test_what_is_nowhere_is_said_to_be(site: Site) -> None:
    await root(site)
    assert "there is no such object" in "\n".join(spell(explain(site, "s3://tree/a/directory/")))
    with pytest.raises(NoSuchBucket):
        explain(site, "s3://none/key")
    with pytest.raises(NoSuchUser):
        explain(site, "s3://tree/key", user="nobody-yet")
    with pytest.raises(InvalidArgument, match="there is no cluster 'mars'"):
        explain(site, "s3://tree/key", cluster="mars")
    for address in ("s3://tree", "s3://tree/", "tree/key", "s3:///key"):
        with pytest.raises(InvalidArgument, match="no address of an object"):
            explain(site, address)


async def test_a_copy_that_was_given_up_is_said_to_be_one_and_nothing_goes_there(site: Site) -> None:
    await root(site)
    await put(site, "far", b"x" * 5_000)
    await find_losses(site, "vault", forget=True)
    (group,) = explain(site, "s3://tree/far")["lies"]["groups"]
    ((name, why),) = [each.values() for each in group["order"]]
    assert name == "vault"
    assert why.endswith("it was given up as lost")
    told = explain(site, "s3://tree/far")
    assert (told["would_go"]["ack"], told["would_go"]["keep"]) == ([], [])
    assert "refused: policy 'far' awaits copies on vault, which is lost" in "\n".join(spell(told))


async def test_the_objects_of_blocks_without_a_good_copy_are_named(site: Site) -> None:
    await root(site)
    for key in ("dir/whole", "dir/lost"):
        await put(site, key, b"x" * 5_000)
    assert (await find_losses(site)).objects == ()
    block, backends, size = site.store.query("SELECT id, backends, size FROM block")[-1]
    (place, *_) = site.storage.lookup.members(backends)
    await site.journal.send(SuspectCopy(block, place, "absent"))
    await site.journal.send(FailWork((Fail(block, 1 << 62, WorkState.LOST, 1, "no good copy"),)))
    told = await find_losses(site)
    assert (told.blocks, told.bytes) == (1, size)
    assert len(told.objects) == 1
    assert told.objects[0] in {"s3://tree/dir/whole", "s3://tree/dir/lost"}
    with pytest.raises(InvalidArgument, match="needs the name of a backend"):
        await find_losses(site, forget=True)


async def test_a_policy_that_is_late_is_a_metric_until_it_is_not(site: Site) -> None:
    late = replication_status.RecoveryPoint("default", 7, 9.0, 1.0, True)
    behind = replication_status.ReplicationStatus(
        (), (replication_status.Backlog("place", 7, 70, 9.0),), (late,), False, ()
    )
    replication_metrics.tell(behind, ["default", "far"])
    assert (replication_metrics.LATE.values[("default",)], replication_metrics.POINT.values[("default",)]) == (1, 9.0)
    assert (replication_metrics.LATE.values[("far",)], replication_metrics.BEHIND.values[("place",)]) == (0, 7)
    replication_metrics.tell(behind._replace(backlog=(), points=()), ["default", "far"])
    assert (replication_metrics.LATE.values[("default",)], replication_metrics.POINT.values[("default",)]) == (0, 0)
    assert (replication_metrics.OLDEST.values[("place",)], replication_metrics.BEHIND.values[("place",)]) == (0, 0)
