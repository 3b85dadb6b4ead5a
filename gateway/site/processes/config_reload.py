"""Taking over an edited config while the site is served. The supervisor's part, and how a command asks for it.

The order, so that no process ever meets what it does not know: the file is checked; the keeper names and claims what is
new; it is in force for whoever starts; every process opens the new backends; and only when all have, every process
writes under the new policies. A config that fails at one of the first two changes nothing anywhere; where the reason
may pass by itself, it is tried again (`refusals`).
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from gateway.config import CONFIG_NAME, load_text
from gateway.config.loading import read
from gateway.errors import Misconfigured
from gateway.metrics import counter, gauge
from gateway.metrics.json_log import DEBUG, ERROR, INFO, LEVELS, WARNING, JsonLog
from gateway.site.active_config import set_active, set_version_metric, settings_needing_restart
from gateway.site.processes.control_channel import Message
from gateway.site.processes.supervised import Process
from gateway.site.serve_lock import read_serving
from gateway.site.storage.atomic_files import file_stamp, write_file
from gateway.site.storage.refusals import Refusals, TemporarilyRejected
from gateway.timing import Timing, timing_from_environment

ASKED, TOLD = "asked", "told"

RELOADS = counter("entrepot_config_reloads_total", "Looks at an edited config, and what came of them.", ("outcome",))
REFUSED = gauge("entrepot_config_refused", "1 while the config's file was refused, and an older one is in force.")


class Outcome(NamedTuple):
    """What came of a reload."""

    outcome: str
    """`adopted`, `unchanged`, `refused` (the old one stays in force), or `incomplete` (not everybody runs it yet)."""
    version: str
    """Of the config in force now."""
    why: str = ""
    passing: bool = False
    """Refused for a reason that may pass: it is tried again by itself."""

    @property
    def well(self) -> bool:
        return self.outcome in {"adopted", "unchanged"}


class Reloading:
    """The config in force, and what replaces it. Of the supervisor."""

    def __init__(
        self,
        folder: Path,
        lines: JsonLog,
        everybody: Callable[[], Sequence[Process]],
        keeper: Process,
        timing: Timing,
    ) -> None:
        """Read the file and put it in force. Raises `Misconfigured`."""
        self._times, self._clock = timing.reload, timing.clock
        self._folder, self._path = folder, folder / CONFIG_NAME
        self._lines, self._everybody, self._keeper = lines, everybody, keeper
        self._seen = file_stamp(self._path)
        text = read(self._path)
        self.config = load_text(text, folder, str(self._path))
        self._message = {"text": text, "version": self.config.version}
        self._wanted = asyncio.Event()
        self._refusals = Refusals(timing)
        self._telling: set[asyncio.Task[Any]] = set()
        set_active(folder, text)
        set_version_metric(self.config)
        for left in _requests(folder, TOLD):
            left.unlink(missing_ok=True)

    def ask(self) -> None:
        """Look at the file now."""
        self._wanted.set()

    async def watch(self) -> None:
        """Reload when asked to, when the file changed and stayed as it is for a moment, and when it is time to try
        again what was refused; until cancelled."""
        last = self._seen
        while True:
            try:
                await asyncio.wait_for(self._wanted.wait(), self._times.look_seconds)
            except TimeoutError:
                now = file_stamp(self._path)
                if now != last or (now == self._seen and not self._refusals.due):
                    last = now
                    continue
            anew = self._wanted.is_set() or last != self._seen
            self._wanted.clear()
            asked = _requests(self._folder, ASKED)
            last = self._seen = file_stamp(self._path)
            outcome = await self._reload(anew=anew)
            for request in asked:
                with suppress(OSError):  # who asked waits in vain where there is no room for the answer
                    write_file(request.with_suffix(f".{TOLD}"), json.dumps(outcome._asdict()))
                    request.unlink(missing_ok=True)

    def catch_up(self, process: Process) -> None:
        """A process is ready: if it read what was in force before, tell it what is now."""
        if process.version != self.config.version:
            task = asyncio.create_task(process.ask("adopt", self._times.adopt_seconds, **self._message))
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)

    @property
    def refused(self) -> dict[str, Any] | None:
        """As `Refusals.plain`."""
        return self._refusals.to_dict()

    async def _reload(self, *, anew: bool) -> Outcome:
        before = self.config.version
        try:
            outcome = await self._take_over()
        except Misconfigured as error:
            outcome = Outcome("refused", self.config.version, str(error), isinstance(error, TemporarilyRejected))
        except Exception as error:  # noqa: BLE001 (a full disk, say: the next edit is looked at all the same)
            word = "refused" if self.config.version == before else "incomplete"
            outcome = Outcome(word, self.config.version, f"{type(error).__name__}: {error}", word == "refused")
        RELOADS.add(1, outcome.outcome)
        self._tell(outcome, anew=anew)
        return outcome

    def _tell(self, outcome: Outcome, *, anew: bool) -> None:
        """What came of it, aloud; but an edit that is tried again, and refused again, was told of before."""
        fields: dict[str, Any] = {"why": outcome.why} if outcome.why else {}
        level = INFO if outcome.well else WARNING
        if outcome.outcome == "refused":
            aloud = self._refusals.record(outcome.why, passing=outcome.passing, anew=anew)
            level = ERROR if aloud else DEBUG
            fields["tried_again"] = outcome.passing
        else:
            self._refusals.clear()
        REFUSED.set(int(outcome.outcome == "refused"))
        self._lines.write(level, f"config {outcome.outcome}", version=outcome.version, **fields)

    async def _take_over(self) -> Outcome:
        text = read(self._path)
        new = await asyncio.to_thread(load_text, text, self._folder, str(self._path))
        if new.version == self.config.version:
            return await self._all_run("unchanged")
        fixed = settings_needing_restart(self.config, new)
        if fixed:
            told = "\n".join(f"{self._path}: {where}: takes a restart of `entrepot serve`" for where in fixed)
            raise Misconfigured(told)
        message = {"text": text, "version": new.version}
        await self._prepared(message)
        await self._left(sorted(self.config.backends.keys() - new.backends.keys()))
        set_active(self._folder, text)
        set_version_metric(new, self.config)
        self.config, self._message = new, message
        self._lines.level = LEVELS[new.log.level]
        for step in ("stand", "adopt"):
            await asyncio.gather(*(each.ask(step, self._times.adopt_seconds, **message) for each in self._everybody()))
        return await self._all_run("adopted")

    async def _prepared(self, message: dict[str, str]) -> None:
        """The keeper has made what is new known. One that ends meanwhile says nothing against the config: the next one
        is asked. Raises `Misconfigured`."""
        prepared: dict[str, Any] = {"ok": False, "why": "the keeper does not run", "passing": True}
        with suppress(TimeoutError):
            async with asyncio.timeout(self._times.prepare_seconds):
                while not prepared["ok"]:
                    await self._keeper.became_ready.wait()
                    prepared = await self._keeper.ask("prepare", self._times.prepare_seconds, **message)
                    if self._keeper.facts is not None:
                        break
        if not prepared["ok"]:
            raise self._refused(prepared)

    async def _left(self, backends: Sequence[str]) -> None:
        """Nobody writes to these any more, also no request that began long ago. Raises `Misconfigured`."""
        if backends:
            asked = (each.ask("leaving", self._times.adopt_seconds, backends=backends) for each in self._everybody())
            for answer in await asyncio.gather(*asked):
                if not answer["ok"]:
                    raise self._refused(answer)

    def _refused(self, answer: Message) -> Misconfigured:
        kind = TemporarilyRejected if answer.get("passing") else Misconfigured
        return kind("\n".join(f"{self._path}: {line}" for line in str(answer["why"]).splitlines()))

    async def _all_run(self, outcome: str) -> Outcome:
        """Wait until every process runs what is in force: one that could not take it over starts again under it."""
        version = self.config.version
        for process in self._everybody():
            if process.facts is not None and process.version != version:
                process.tell({"do": "stop"})
        deadline = self._clock.monotonic() + self._times.adopt_seconds
        while True:
            others = [each.role.name for each in self._everybody() if each.facts is None or each.version != version]
            if not others:
                return Outcome(outcome, version)
            if self._clock.monotonic() > deadline:
                return Outcome("incomplete", version, f"not run yet by {', '.join(others)}")
            await self._clock.sleep(self._times.poll_seconds)


def request(folder: Path, timing: Timing | None = None) -> Outcome:
    """Have who serves the site in *folder* take its config over, and wait for what came of it. Raises `Misconfigured`
    if nobody serves it, or nobody answers."""
    timing = timing or timing_from_environment()
    serving = read_serving(folder)
    if serving is None:
        raise Misconfigured(f"{folder} is not being served: the config is read when it is")
    asked = folder / "run" / f"reload-{secrets.token_hex(8)}.{ASKED}"
    told = asked.with_suffix(f".{TOLD}")
    write_file(asked, "")
    try:
        os.kill(serving["pid"], signal.SIGHUP)
        clock, times = timing.clock, timing.reload
        deadline = clock.monotonic() + times.prepare_seconds + 3 * times.adopt_seconds
        while not told.exists():
            if clock.monotonic() > deadline or read_serving(folder) is None:
                raise Misconfigured(f"who serves {folder} (process {serving['pid']}) did not answer")
            time.sleep(times.poll_seconds)
        return Outcome(**json.loads(told.read_text()))
    except ProcessLookupError as error:
        raise Misconfigured(f"{folder} is not being served any more") from error
    finally:
        asked.unlink(missing_ok=True)
        told.unlink(missing_ok=True)


def _requests(folder: Path, state: str) -> list[Path]:
    return sorted((folder / "run").glob(f"reload-*.{state}"))
