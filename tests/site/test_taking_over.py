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
from gateway.metrics.lines import Lines
from gateway.site import reloading
from gateway.site.processes import Process
from gateway.site.reloading import Outcome, Reloading
from tests.site.running import until_true

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


def taking_over(folder: Path, keeper: Role) -> Reloading:
    lines = Lines("supervisor")
    return Reloading(folder, lines, lambda: [cast("Process", keeper)], cast("Process", keeper))


async def asked(it: Reloading, folder: Path, name: str) -> Outcome:
    """What a command is told that asks now, of somebody who watches."""
    request = folder / "run" / f"reload-{name}.asked"
    request.write_text("")
    it.ask()
    told = request.with_suffix(".told")
    await until_true(told.exists)
    return Outcome(**json.loads(told.read_text()))


async def test_a_full_disk_refuses_one_edit_and_the_next_is_taken_over(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = taking_over(folder, Role())
    before = it.config.version
    watching = asyncio.create_task(it.watch())

    def full(folder: Path, text: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(reloading, "put_in_force", full)
        (folder / "entrepot.toml").write_text(OTHER)
        told = await asked(it, folder, "full")
    assert (told.outcome, told.version) == ("refused", before)
    assert "No space left" in told.why
    told = await asked(it, folder, "room")
    assert (told.outcome, told.version) == ("adopted", load_text(OTHER, folder).version)
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
