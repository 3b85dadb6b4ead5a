"""A backend that was given up as lost: nothing new is put there, and whoever still names it is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway.errors import Unavailable
from gateway.site.losing import losses
from gateway.site.site import Site
from tests.endpoint import run_entrepot
from tests.site.running import change_config
from tests.site.test_placing import folder, get, held, put  # noqa: F401 (a fixture among them)


async def lose(site: Site, name: str) -> None:
    await losses(site, name, forget=True)
    site.warehouse.placing._look_again = 0.0  # a second has passed


async def test_a_policy_that_awaits_a_copy_there_refuses_with_clear_words(folder: Path) -> None:  # noqa: F811
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


async def test_status_and_check_say_which_policies_name_it(folder: Path) -> None:  # noqa: F811
    async with await Site.open(folder) as site:
        await losses(site, "vault", forget=True)
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
