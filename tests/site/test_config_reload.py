"""The supervisor's part of a reload, over processes that do as a test says: what a full disk and a death do to it."""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from gateway.config import default_text, load_text
from gateway.metrics.json_log import LEVELS, JsonLog
from gateway.site.processes import config_reload
from gateway.site.processes.config_reload import ConfigReloader, Outcome
from gateway.site.processes.supervised import SupervisedProcess
from gateway.timing import parse_timing
from tests.waiting import until_true

OTHER = default_text().replace("expire_days = 7.0", "expire_days = 8.0")


class Role:
    """A process that takes over whatever it is told, unless *dies* says that it ends instead."""

    def __init__(self, dies: Callable[[str], bool] = lambda what: False) -> None:
        self.version = ""
        self.facts: dict[str, Any] | None = {}
        self.became_ready = asyncio.Event()
        self.became_ready.set()
        self.asked: list[str] = []
        self._dies = dies
        self._lives: set[asyncio.Task[None]] = set()

    async def ask(self, what: str, seconds: float, **message: Any) -> dict[str, Any]:
        self.asked.append(what)
        if self._dies(what):
            self.facts = None
            self.became_ready.clear()
            self._lives.add(asyncio.create_task(self._live_again()))
            return {"ok": False, "why": "the keeper ended before it answered"}
        if what == "adopt":
            self.version = message["version"]
        return {"ok": True}

    async def _live_again(self) -> None:
        await asyncio.sleep(0)
        self.facts = {}
        self.became_ready.set()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    (tmp_path / "entrepot.toml").write_text(default_text())
    return tmp_path


TIMING = parse_timing("reload.look_seconds=0.01; reload.refused_first_seconds=0.01; reload.poll_seconds=0.001")


def taking_over(folder: Path, keeper: Role) -> ConfigReloader:
    lines = JsonLog("supervisor", timing=TIMING)
    return ConfigReloader(
        folder, lines, lambda: [cast("SupervisedProcess", keeper)], cast("SupervisedProcess", keeper), TIMING
    )


async def asked(it: ConfigReloader, folder: Path, name: str) -> Outcome:
    """What a command is told that asks now, of somebody who watches."""
    request = folder / "run" / f"reload-{name}.asked"
    request.write_text("")
    it.ask()
    told = request.with_suffix(".told")
    await until_true(told.exists)
    return Outcome.from_dict(json.loads(told.read_text()))


async def test_a_full_disk_refuses_one_edit_and_the_next_is_taken_over(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = taking_over(folder, Role())
    before = it.config.version
    watching = asyncio.create_task(it.watch())

    def full(folder: Path, text: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(config_reload, "set_active", full)
        (folder / "entrepot.toml").write_text(OTHER)
        told = await asked(it, folder, "full")
    assert (told.outcome, told.version) == ("refused", before)
    assert "No space left" in told.why
    told = await asked(it, folder, "room")
    assert told.succeeded  # it may have been tried again by itself meanwhile
    assert told.version == it.config.version == load_text(OTHER, folder).version
    assert not watching.done()
    watching.cancel()


async def test_a_keeper_that_ends_while_it_is_asked_says_nothing_against_the_config(folder: Path) -> None:
    deaths = iter([True, True])
    keeper = Role(lambda what: what == "prepare" and next(deaths, False))
    it = taking_over(folder, keeper)
    watching = asyncio.create_task(it.watch())
    (folder / "entrepot.toml").write_text(OTHER)
    told = await asked(it, folder, "again")
    assert told.outcome == "adopted"
    assert keeper.asked == ["prepare", "prepare", "prepare", "stand", "adopt"]
    watching.cancel()


class Refusing(Role):
    """A keeper that refuses an edit so often, for a reason that may pass or not."""

    def __init__(self, often: int, *, passing: bool) -> None:
        super().__init__()
        self.often, self.passing = often, passing

    async def ask(self, what: str, seconds: float, **message: Any) -> dict[str, Any]:
        answer = await super().ask(what, seconds, **message)
        if what == "prepare" and self.asked.count("prepare") <= self.often:
            return {"ok": False, "why": "backends.far: away", "passing": self.passing}
        return answer


async def test_what_may_pass_is_tried_again_without_anybody_asking(folder: Path) -> None:
    keeper = Refusing(3, passing=True)
    it = taking_over(folder, keeper)
    watching = asyncio.create_task(it.watch())
    (folder / "entrepot.toml").write_text(OTHER)
    wanted = load_text(OTHER, folder).version
    await until_true(lambda: it.refused is not None)
    await until_true(lambda: it.config.version == wanted and it.refused is None)
    assert keeper.asked == ["prepare"] * 4 + ["stand", "adopt"]
    assert (folder / "run" / "in-force.toml").read_text() == OTHER
    watching.cancel()


async def test_what_is_wrong_for_good_waits_for_another_edit(folder: Path) -> None:
    keeper = Refusing(1, passing=False)
    it = taking_over(folder, keeper)
    watching = asyncio.create_task(it.watch())
    config = folder / "entrepot.toml"
    config.write_text(OTHER)
    await until_true(lambda: it.refused is not None)
    refused = it.refused or {}
    assert refused == {"why": f"{config}: backends.far: away", "tries": 1, "again_seconds": None}
    for _ in range(20):
        await asyncio.sleep(TIMING.reload.look_seconds)
    assert keeper.asked == ["prepare"]
    assert (folder / "run" / "in-force.toml").read_text() == default_text()
    config.write_text(OTHER.replace("expire_days = 8.0", "expire_days = 9.0"))
    await until_true(lambda: it.refused is None and keeper.asked[-1] == "adopt")
    watching.cancel()


VAULT = '\n[backends.vault]\ntype = "local"\ncluster = "home"\npath = "vault"\n'


class Busy(Role):
    """Requests of its own still write to what leaves."""

    async def ask(self, what: str, seconds: float, **message: Any) -> dict[str, Any]:
        answer = await super().ask(what, seconds, **message)
        return {"ok": False, "why": "backends.vault: still written", "passing": True} if what == "leaving" else answer


async def test_a_backend_leaves_only_once_everybody_says_that_nobody_writes_there(folder: Path) -> None:
    (folder / "entrepot.toml").write_text(default_text() + VAULT)
    keeper = Busy()
    it = taking_over(folder, keeper)
    before = it.config.version
    watching = asyncio.create_task(it.watch())
    (folder / "entrepot.toml").write_text(default_text())
    told = await asked(it, folder, "busy")
    assert (told.outcome, told.version, told.temporary) == ("refused", before, True)
    assert "stand" not in keeper.asked
    assert (folder / "run" / "in-force.toml").read_text() == default_text() + VAULT
    watching.cancel()


async def test_who_starts_under_an_older_config_is_told_the_one_in_force(folder: Path) -> None:
    it = taking_over(folder, Role())
    late = Role()
    late.version = it.config.version
    it.catch_up(cast("SupervisedProcess", late))
    await asyncio.sleep(0)
    assert late.asked == []
    late.version = "older"
    it.catch_up(cast("SupervisedProcess", late))
    await until_true(lambda: late.version == it.config.version)


async def test_the_level_of_the_log_is_taken_over(folder: Path) -> None:
    it = taking_over(folder, Role())
    watching = asyncio.create_task(it.watch())
    (folder / "entrepot.toml").write_text(default_text().replace('level = "info"', 'level = "error"'))
    assert (await asked(it, folder, "quiet")).succeeded
    assert it._json_log.level == LEVELS["error"]
    watching.cancel()
