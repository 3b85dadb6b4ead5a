"""How the site stands, as people and programs are told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gateway.cli.text.replication import to_dict, to_text
from gateway.reconcile.commands import AdvancePlan, Begin, BeginWork, SetBlockHolders, SetHolders
from gateway.site.replication_status import (
    BackendUse,
    Backlog,
    RecoveryPoint,
    ReplicationStatus,
    read_status,
)
from gateway.site.site import Site
from tests.site.test_write_targets import MORE, put

PAGE = (Path(__file__).parents[2] / "docs" / "placement.md").read_text()
ONE = ReplicationStatus(
    backends=(BackendUse("disk", "home", 3, 4, 5, "in use"),),
    backlog=(Backlog("lost", 2, 20, 1.0), Backlog("place", 7, 70, 2.0)),
    points=(RecoveryPoint("default", 7, 2.0, 1.0, True), RecoveryPoint("gone", 1, 2.0, 0.0, False)),
    walking=False,
    unknown_policies=("gone",),
)


def test_what_programs_are_told_stands_on_the_page() -> None:
    told = to_dict(ONE)
    lists = [each for each in told.values() if isinstance(each, list) and each and isinstance(each[0], dict)]
    fields = [*told, *(field for each in lists for field in each[0])]
    assert {"settled", "placement", "backlog", "recovery_points", "leaving", "late"} <= set(fields)
    for field in fields:
        assert f"`{field}`" in PAGE, field


def test_what_is_lost_is_said_before_anything_is_said_to_be_well() -> None:
    settled = ONE._replace(backlog=ONE.backlog[:1])
    assert settled.settled
    told = "\n".join(to_text(settled, {}))
    assert "copies: 2 block(s) are LOST, `entrepot backend lost` names the objects; of the rest, all are" in told
    assert "copies: all are where they should be" in to_text(settled._replace(backlog=()), {})


def test_only_a_policy_that_promised_something_is_late() -> None:
    told = "\n".join(to_text(ONE, {}))
    assert "policy default: 7 block(s) behind, for 2 s at most, LATE: it promises 1 s" in told
    assert "policy gone: 1 block(s) behind, for 2 s at most\n" in told


async def test_a_copy_that_is_being_made_is_not_taken_for_bytes_that_go(tmp_path: Path, new_folder: Path) -> None:
    """Both are places of which the block's set says nothing; who takes a disk away must know which of them it is."""
    config = new_folder / "entrepot.toml"
    text = config.read_text().replace('keep = ["disk"]', 'keep = ["disk", "vault"]')
    config.write_text(text + MORE.format(vault=tmp_path / "vault"))
    async with await Site.open(new_folder) as site:

        async def now() -> tuple[bool, list[str], list[str]]:
            told = await read_status(site.journal_path, site.config.topology(site.folder), site.timing.clock)
            return told.settled, [each.kind for each in told.backlog], [each.policy for each in told.points]

        await put(site, "key", b"x")
        ((block, held),) = site.store.query("SELECT id, backends FROM block")
        ((vault,),) = site.store.query("SELECT id FROM backend WHERE name = 'vault'")
        was = site.storage.lookup.members(held)
        assert (await now())[1:] == (["place"], ["default"])
        await site.journal.send(BeginWork((Begin(block, held, (vault,)),)))
        assert (await now())[1:] == (["place"], ["default"])
        await site.journal.send(SetBlockHolders((SetHolders(block, held, was, (vault,), False),)))
        assert (await now())[1:] == (["place"], ["default"])
        ((held,),) = site.store.query("SELECT backends FROM block")
        await site.journal.send(SetBlockHolders((SetHolders(block, held, (vault,), (*was, vault), True),)))
        assert (await now())[1:] == ([], [])


async def test_bytes_that_wait_to_go_leave_no_policy_behind(tmp_path: Path, new_folder: Path) -> None:
    """A backup holds them for a month, and all is as it should be meanwhile."""
    with (new_folder / "entrepot.toml").open("a") as config:
        config.write(MORE.format(vault=tmp_path / "vault"))
    async with await Site.open(new_folder) as site:
        await put(site, "safe/key", b"x")
        ((block, held),) = site.store.query("SELECT id, backends FROM block")
        was = site.storage.lookup.members(held)
        topology = site.config.topology(site.folder)
        safe = topology.policies["safe"]
        less = replace(topology, policies={**topology.policies, "safe": replace(safe, keep=("disk",))})
        await site.journal.send(AdvancePlan(b"f" * 16, b"", b"", 1, 1 << 62, (block,), 0))
        told = await read_status(site.journal_path, less, site.timing.clock)
        assert ([each.kind for each in told.backlog], [each.policy for each in told.points]) == (["place"], ["safe"])
        ((disk,),) = site.store.query("SELECT id FROM backend WHERE name = 'disk'")
        await site.journal.send(SetBlockHolders((SetHolders(block, held, was, (disk,), True),)))
        told = await read_status(site.journal_path, less, site.timing.clock)
        assert ([each.kind for each in told.backlog], [each.policy for each in told.points]) == (["clear"], [])
