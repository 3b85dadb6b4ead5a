"""What would be lost with a backend, and what happens once it was given up."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from backends.testing.faulty import Fault, FaultKind, FaultPlan, Faulty
from gateway.cli.text.lost_objects import to_text
from gateway.errors import InvalidArgument, Unavailable
from gateway.journal.tables import WorkState
from gateway.reconcile.commands import Fail, FailWork, SuspectCopy
from gateway.site.admin.lost_objects import find_losses
from gateway.site.site import Site
from tests.endpoint import run_entrepot
from tests.files import block_files
from tests.site.running import change_config
from tests.site.test_write_targets import folder, get, held, put  # noqa: F401 (a fixture among them)


async def lose(site: Site, name: str) -> None:
    await find_losses(site, name, forget=True)
    site.storage.write_targets._look_again = 0.0  # a second has passed


async def test_a_policy_that_awaits_a_copy_on_a_lost_backend_refuses_writes_and_says_why(folder: Path) -> None:  # noqa: F811
    async with await Site.open(folder) as site:
        await put(site, "safe/before", b"x")
        before = await held(site, "vault")
        await lose(site, "vault")
        with pytest.raises(Unavailable, match=r"'safe' awaits copies on vault, which is lost: name others in its ack"):
            await put(site, "safe/small", b"x")
        await put(site, "small", b"x")
        assert await get(site, "safe/before") == b"x"
        assert await held(site, "vault") == before


async def test_a_policy_that_awaits_only_some_copies_goes_on_with_the_others(folder: Path) -> None:  # noqa: F811
    text = '[policies.safe]\nack = ["disk", "vault"]\n'
    change_config(folder, text, f"{text}ack_copies = 1\n")
    async with await Site.open(folder) as site:
        await lose(site, "vault")
        await put(site, "safe/small", b"x")
        assert await held(site, "vault") == set()
        assert await get(site, "safe/small") == b"x"
        rows = site.store.query("SELECT count(*) FROM work")
        assert rows == [(0,)], "it lies on all that is left to lie on"


async def test_a_copy_that_only_the_journal_knows_is_not_counted_on(folder: Path) -> None:  # noqa: F811
    async with await Site.open(folder) as site:
        await put(site, "safe/whole", b"x" * 100_000)
        await put(site, "safe/gone", b"y" * 100_000)
        await put(site, "safe/short", b"z" * 100_000)
        whole = await find_losses(site, "disk")
        assert (whole.blocks, whole.objects, whole.present, whole.absent, whole.unchecked) == (0, (), 3, 0, 0)
        assert "nothing would be lost with it" in "\n".join(to_text(whole))
        vault = folder.parent / "vault"
        by_size = sorted(block_files(vault), key=lambda path: path.stat().st_mtime_ns)
        by_size[1].unlink()
        by_size[2].chmod(0o600)
        by_size[2].write_bytes(b"short")
        losses = await find_losses(site, "disk")
        assert (losses.blocks, losses.present, losses.absent, losses.unchecked) == (2, 1, 2, 0)
        assert len(losses.objects) == 2
        assert "s3://tree/safe/whole" not in losses.objects
        text = "\n".join(to_text(losses))
        assert "2 of these should have another copy, according to the journal, but it was not found" in text
        assert "1 block(s) on disk have another copy, which was found" in text
        assert "nothing would be lost" not in text


async def test_copies_on_a_backend_that_cannot_be_asked_are_reported_as_unchecked(folder: Path) -> None:  # noqa: F811
    async with await Site.open(folder) as site:
        for n in range(3):
            await put(site, f"safe/{n}", b"x" * 100_000)
        plan = FaultPlan([Fault(FaultKind.ERROR, verb="stat")])
        vault = next(each for each, place in site.storage.backends.items() if place.name == "vault")
        guarded = site.storage.backends[vault]
        guarded.replace_inner(Faulty(guarded.inner, plan))
        losses = await find_losses(site, "disk")
        assert (losses.blocks, losses.present, losses.absent, losses.unchecked) == (0, 0, 0, 3)
        text = "\n".join(to_text(losses))
        assert "3 block(s) on disk have another copy according to the journal, which was not checked" in text
        assert "vault cannot be asked" in text
        assert "nothing would be lost" not in text


def test_copies_that_are_not_to_be_checked_are_reported_as_unchecked(folder: Path) -> None:  # noqa: F811
    async def fill() -> None:
        async with await Site.open(folder) as site:
            await put(site, "safe/k", b"x" * 100_000)

    asyncio.run(fill())
    arguments = ("backend", "lost", "disk", "--site", str(folder), "--json")
    checked = json.loads(run_entrepot(*arguments).stdout)
    assert (checked["present"], checked["unchecked"], checked["away"]) == (1, 0, [])
    believed = json.loads(run_entrepot(*arguments, "--no-check").stdout)
    assert (believed["present"], believed["unchecked"], believed["away"]) == (0, 1, [])


async def test_status_and_check_say_which_policies_name_it(folder: Path) -> None:  # noqa: F811
    async with await Site.open(folder) as site:
        await find_losses(site, "vault", forget=True)
    expected = [
        "writes are refused: policy 'safe' awaits copies on vault, which is lost: name others in its ack, and reload",
        "writes are refused: policy 'far' awaits copies on vault, which is lost: name others in its ack, and reload",
    ]
    assert json.loads(run_entrepot("status", str(folder), "--json").stdout)["remarks"] == expected
    assert json.loads(run_entrepot("config", "check", "--site", str(folder), "--json").stdout)["remarks"] == expected
    shown = run_entrepot("config", "check", "--site", str(folder)).stdout
    assert all(line in shown.splitlines() for line in expected)
    change_config(folder, 'ack = ["disk", "vault"]', 'ack = ["disk"]')
    remarks = json.loads(run_entrepot("config", "check", "--site", str(folder), "--json").stdout)["remarks"]
    assert remarks[0] == "policy 'safe' names vault, lost for good: nothing is put there any more"


async def test_the_objects_of_blocks_without_a_good_copy_are_named(folder: Path) -> None:  # noqa: F811
    async with await Site.open(folder) as site:
        for key in ("dir/whole", "dir/lost"):
            await put(site, key, b"x" * 5_000)
        assert (await find_losses(site)).objects == ()
        block, backends, size = site.store.query("SELECT id, backends, size FROM block")[-1]
        (place, *_) = site.storage.lookup.members(backends)
        await site.journal.send(SuspectCopy(block, place, "absent"))
        await site.journal.send(FailWork((Fail(block, 1 << 62, WorkState.LOST, 1, "no good copy"),)))
        losses = await find_losses(site)
        assert (losses.blocks, losses.bytes) == (1, size)
        assert len(losses.objects) == 1
        assert losses.objects[0] in {"s3://tree/dir/whole", "s3://tree/dir/lost"}
        with pytest.raises(InvalidArgument, match="needs the name of a backend"):
            await find_losses(site, forget=True)
