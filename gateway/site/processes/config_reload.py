"""Config reload: adopting an edited config while the site is served. The supervisor's part, and the command's.

Theory of operation. A reload goes through these phases, so that no process ever meets a backend that it does
not know:

1. CHECK: the file is parsed and validated, and changes no setting that needs a restart.
2. PREPARE: the keeper registers and claims the backends that the config adds, and checks that a backend that leaves is
   empty.
3. CHECK_OLD_WRITES: every process confirms that none of its requests still writes to a backend that leaves.
4. ACTIVATE: the config is in force. Processes that start from now on read it.
5. OPEN_BACKENDS: every process opens the new backends.
6. ADOPT: every process writes under the new policies.
7. CONFIRM: every process works under the new config. One that could not adopt it is restarted under it.

A config that fails in phases 1 to 3 is refused and changes nothing. If the reason may pass by itself, the reload is
tried again (`refusals.py`). After phase 4 a reload is never rolled back: it is *incomplete* until every process works
under it.

A command requests a reload by a file `run/reload-ID.asked` and SIGHUP. It gets the outcome in `run/reload-ID.told`.
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
from gateway.metrics.json_log import DEBUG, ERROR, INFO, WARNING, JsonLog
from gateway.site.active_config import set_active, set_version_metric, settings_needing_restart
from gateway.site.processes.control_channel import Message, Question
from gateway.site.processes.supervised import SupervisedProcess
from gateway.site.serve_lock import read_serving
from gateway.site.storage.atomic_files import file_stamp, write_file
from gateway.site.storage.refusals import Refusals, TemporarilyRejected
from gateway.timing import Timing, timing_from_environment

REQUEST_SUFFIX, RESPONSE_SUFFIX = "asked", "told"

RELOADS = counter("entrepot_config_reloads_total", "Reloads of the config, by outcome.", ("outcome",))
REFUSED = gauge("entrepot_config_refused", "1 while the config file is refused and an older config is in force.")


class Outcome(NamedTuple):
    """The result of a reload."""

    outcome: str
    """`adopted`, `unchanged`, `refused` (the old config stays in force), or `incomplete` (a process does not work under
    it yet)."""
    version: str
    """The version of the config in force now."""
    why: str = ""
    temporary: bool = False
    """Whether the config was refused for a reason that may be temporary, so the reload is tried again."""

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome for JSON, where `temporary` has the key `passing`."""
        return {"outcome": self.outcome, "version": self.version, "why": self.why, "passing": self.temporary}

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Outcome:
        """Return the outcome that `to_dict` returned as *fields*."""
        return cls(fields["outcome"], fields["version"], fields.get("why", ""), fields.get("passing", False))

    @property
    def succeeded(self) -> bool:
        return self.outcome in {"adopted", "unchanged"}


class ConfigReloader:
    """Holds the config in force, and replaces it. Used by the supervisor."""

    def __init__(
        self,
        folder: Path,
        json_log: JsonLog,
        all_processes: Callable[[], Sequence[SupervisedProcess]],
        keeper: SupervisedProcess,
        timing: Timing,
    ) -> None:
        """Load the config file and put it in force. *all_processes* returns the supervised processes. Raises
        `Misconfigured`."""
        self._times, self._clock = timing.reload, timing.clock
        self._folder, self._path = folder, folder / CONFIG_NAME
        self._json_log, self._all_processes, self._keeper = json_log, all_processes, keeper
        self._seen = file_stamp(self._path)
        text = read(self._path)
        self.config = load_text(text, folder, str(self._path))
        self._message = {"text": text, "version": self.config.version}
        self._wanted = asyncio.Event()
        self._refusals = Refusals(timing)
        self._catching_up: set[asyncio.Task[Any]] = set()
        set_active(folder, text)
        set_version_metric(self.config)
        for left in _requests(folder, RESPONSE_SUFFIX):
            left.unlink(missing_ok=True)

    def ask(self) -> None:
        """Check the file now."""
        self._wanted.set()

    async def watch(self) -> None:
        """Reload when `ask` was called, when the file has changed and then stayed the same for a while, and when a
        refused config is due again; until cancelled."""
        last = self._seen
        while True:
            try:
                await asyncio.wait_for(self._wanted.wait(), self._times.look_seconds)
            except TimeoutError:
                now = file_stamp(self._path)
                if now != last or (now == self._seen and not self._refusals.due):
                    last = now
                    continue
            is_new = self._wanted.is_set() or last != self._seen
            self._wanted.clear()
            requests = _requests(self._folder, REQUEST_SUFFIX)
            last = self._seen = file_stamp(self._path)
            outcome = await self._reload(is_new=is_new)
            for request in requests:
                with suppress(OSError):  # the command times out if there is no space for the answer
                    write_file(request.with_suffix(f".{RESPONSE_SUFFIX}"), json.dumps(outcome.to_dict()))
                    request.unlink(missing_ok=True)

    def catch_up(self, process: SupervisedProcess) -> None:
        """Called when *process* is ready: if it has read an older config than the one in force, have it adopt this
        one."""
        if process.version != self.config.version:
            task = asyncio.create_task(process.ask(Question.ADOPT, self._times.adopt_seconds, **self._message))
            self._catching_up.add(task)
            task.add_done_callback(self._catching_up.discard)

    @property
    def refused(self) -> dict[str, Any] | None:
        """The refused config, as `Refusals.to_dict` returns it; None if none is refused."""
        return self._refusals.to_dict()

    async def _reload(self, *, is_new: bool) -> Outcome:
        before = self.config.version
        try:
            outcome = await self._adopt_file()
        except Misconfigured as error:
            outcome = Outcome("refused", self.config.version, str(error), isinstance(error, TemporarilyRejected))
        except Exception as error:  # noqa: BLE001 (such as a full disk: the next edit is checked all the same)
            word = "refused" if self.config.version == before else "incomplete"
            outcome = Outcome(word, self.config.version, f"{type(error).__name__}: {error}", word == "refused")
        RELOADS.add(1, outcome.outcome)
        self._log_outcome(outcome, is_new=is_new)
        return outcome

    def _log_outcome(self, outcome: Outcome, *, is_new: bool) -> None:
        """Log the outcome, as an error unless the same edit was refused before."""
        fields: dict[str, Any] = {"why": outcome.why} if outcome.why else {}
        level = INFO if outcome.succeeded else WARNING
        if outcome.outcome == "refused":
            is_news = self._refusals.record(outcome.why, temporary=outcome.temporary, is_new=is_new)
            level = ERROR if is_news else DEBUG
            fields["tried_again"] = outcome.temporary
        else:
            self._refusals.clear()
        REFUSED.set(int(outcome.outcome == "refused"))
        self._json_log.write(level, f"config {outcome.outcome}", version=outcome.version, **fields)

    async def _adopt_file(self) -> Outcome:
        """Run the phases of a reload. Raises `Misconfigured` if the config is refused."""
        text = read(self._path)
        new = await asyncio.to_thread(load_text, text, self._folder, str(self._path))
        if new.version == self.config.version:
            return await self._confirm("unchanged")
        fixed = settings_needing_restart(self.config, new)
        if fixed:
            raise Misconfigured(
                "\n".join(f"{self._path}: {each}: needs a restart of `entrepot serve`" for each in fixed)
            )
        message = {"text": text, "version": new.version}
        await self._prepare(message)
        await self._check_old_writes(sorted(self.config.backends.keys() - new.backends.keys()))
        set_active(self._folder, text)
        set_version_metric(new, self.config)
        self.config, self._message = new, message
        self._json_log.configure(new.log.level, new.log.format)
        for question in (Question.OPEN_BACKENDS, Question.ADOPT):
            await asyncio.gather(
                *(each.ask(question, self._times.adopt_seconds, **message) for each in self._all_processes())
            )
        return await self._confirm("adopted")

    async def _prepare(self, message: dict[str, str]) -> None:
        """Have the keeper prepare. If it ends before it answers, that says nothing against the config: the next one is
        asked. Raises `Misconfigured`."""
        prepared: dict[str, Any] = {"ok": False, "why": "the keeper does not run", "passing": True}
        with suppress(TimeoutError):
            async with asyncio.timeout(self._times.prepare_seconds):
                while not prepared["ok"]:
                    await self._keeper.became_ready.wait()
                    prepared = await self._keeper.ask(Question.PREPARE, self._times.prepare_seconds, **message)
                    if self._keeper.facts is not None:
                        break
        if not prepared["ok"]:
            raise self._refused(prepared)

    async def _check_old_writes(self, backends: Sequence[str]) -> None:
        """Raise `Misconfigured` if a request of any process still writes to one of *backends*."""
        if backends:
            question, seconds = Question.CHECK_OLD_WRITES, self._times.adopt_seconds
            answers = (each.ask(question, seconds, backends=backends) for each in self._all_processes())
            for answer in await asyncio.gather(*answers):
                if not answer["ok"]:
                    raise self._refused(answer)

    def _refused(self, answer: Message) -> Misconfigured:
        kind = TemporarilyRejected if answer.get("passing") else Misconfigured
        return kind("\n".join(f"{self._path}: {line}" for line in str(answer["why"]).splitlines()))

    async def _confirm(self, outcome: str) -> Outcome:
        """Wait until every process works under the config in force. One that could not adopt it is restarted."""
        version = self.config.version
        for process in self._all_processes():
            if process.facts is not None and process.version != version:
                process.tell({"do": "stop"})
        deadline = self._clock.monotonic() + self._times.adopt_seconds
        while True:
            others = [each.role.name for each in self._all_processes() if each.facts is None or each.version != version]
            if not others:
                return Outcome(outcome, version)
            if self._clock.monotonic() > deadline:
                return Outcome("incomplete", version, f"not adopted yet by {', '.join(others)}")
            await self._clock.sleep(self._times.poll_seconds)


def request(folder: Path, timing: Timing | None = None) -> Outcome:
    """Have the supervisor of the site in *folder* reload its config, and return the outcome. Blocking.

    Raises `Misconfigured` if the site is not served, or the supervisor does not answer."""
    timing = timing or timing_from_environment()
    serving = read_serving(folder)
    if serving is None:
        raise Misconfigured(f"{folder} is not being served: its config is read when it is")
    request_file = folder / "run" / f"reload-{secrets.token_hex(8)}.{REQUEST_SUFFIX}"
    response_file = request_file.with_suffix(f".{RESPONSE_SUFFIX}")
    write_file(request_file, "")
    try:
        os.kill(serving["pid"], signal.SIGHUP)
        clock, times = timing.clock, timing.reload
        deadline = clock.monotonic() + times.prepare_seconds + 3 * times.adopt_seconds
        while not response_file.exists():
            if clock.monotonic() > deadline or read_serving(folder) is None:
                raise Misconfigured(f"the supervisor of {folder} (process {serving['pid']}) did not answer")
            time.sleep(times.poll_seconds)
        return Outcome.from_dict(json.loads(response_file.read_text()))
    except ProcessLookupError as error:
        raise Misconfigured(f"{folder} is not being served any more") from error
    finally:
        request_file.unlink(missing_ok=True)
        response_file.unlink(missing_ok=True)


def _requests(folder: Path, state: str) -> list[Path]:
    return sorted((folder / "run").glob(f"reload-*.{state}"))
