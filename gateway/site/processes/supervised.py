"""One process under the supervisor, over all the lives that it has: started, heard, asked, stopped, started again."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gateway.journal.heartbeat import Heartbeat, is_suspended
from gateway.site.paths import python_path
from gateway.site.processes.child import AGAIN, EXIT_MISCONFIGURED
from gateway.site.processes.control_channel import CONTROL_FD, Line, Message, pair
from gateway.timing import Timing


@dataclass(frozen=True, slots=True)
class Role:
    """What a process is: its name, the module that is run, and sockets that it inherits, each by a variable that
    tells its descriptor."""

    name: str
    module: str
    inherits: Mapping[str, socket.socket] = field(default_factory=dict)


class Process:
    """A role that is filled by one process at a time. *heard* is told each message; *ended* each end that nobody asked
    for, and whether starting again would help."""

    def __init__(
        self,
        role: Role,
        folder: Path,
        heard: Callable[[Process, Message], None],
        ended: Callable[[Process, bool], None],
        timing: Timing,
    ) -> None:
        self._times, self._clock = timing.processes, timing.clock
        self.role = role
        self.pid = 0
        self.facts: Message | None = None
        """What it told when it became ready; None until then."""
        self.why = ""
        """Why it failed, in its own words."""
        self.restarts = -1
        self.became_ready = asyncio.Event()
        self._folder = folder
        self._heard = heard
        self._ended = ended
        self._line: Line | None = None
        self._was_ready = False
        self._was_ever_ready = False
        self._heartbeat = Heartbeat(self._times)
        self.hung = False
        """Its last life ended because its event loop hung."""
        self._stop = asyncio.Event()
        self.version = ""
        """Of the config that it runs, as it told last."""
        self.backends: dict[str, str] = {}
        """Those that it cannot use as it should, and why, as it told last."""
        self._asked: dict[int, asyncio.Future[Message]] = {}
        self._asked_number = 0
        self._task: asyncio.Task[None] | None = None
        self._running: asyncio.subprocess.Process | None = None

    def start(self) -> None:
        """Keep the role filled, from now until `stop`."""
        self._task = asyncio.create_task(self._keep())

    @property
    def is_responsive(self) -> bool:
        """It is ready and was heard lately."""
        return self.facts is not None and self._heartbeat.is_responsive

    def describe(self) -> dict[str, Any]:
        """For people who ask how it is."""
        restarts = max(0, self.restarts)
        found: dict[str, Any] = {
            "pid": self.pid,
            "well": self.is_responsive,
            "restarts": restarts,
            "config": self.version,
        }
        if self.backends:
            found["backends"] = self.backends
        return {**found, "why": self.why} if self.why else found

    def tell(self, message: Message) -> None:
        if self._line is not None:
            self._line.tell(message)

    async def ask(self, what: str, seconds: float, **details: Any) -> Message:
        """What it answers when told to do *what*; not ok when it doesn't say within so many seconds, or ends: then
        `why`, and whether that is `passing`: asked again, it may say something else."""
        if self._line is None:
            return _unanswered(f"the {self.role.name} is not running")
        self._asked_number += 1
        number = self._asked_number
        waiting: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._asked[number] = waiting
        self.tell({"do": what, "number": number, **details})
        try:
            async with asyncio.timeout(seconds):
                return await waiting
        except TimeoutError:
            return _unanswered(f"the {self.role.name} did not answer within {seconds:g} s")
        finally:
            self._asked.pop(number, None)

    async def stop(self, seconds: float) -> None:
        """Ask it to finish; kill it when it has not after so many seconds."""
        self._stop.set()
        if self._task is None:
            return
        self.tell({"do": "stop"})
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.shield(self._task)
                return
        self.kill()
        await self._task

    async def _watch(self) -> None:
        """Kill it once its event loop hangs."""
        while not self._heartbeat.is_hung(ready=self.facts is not None):
            await self._clock.sleep(self._times.report_seconds)
            self._heartbeat.tick(suspended=is_suspended(self.pid))
        self.hung, self.why = True, "its event loop hung, so it was killed"
        self.kill()

    def kill(self) -> None:
        if self._running is not None and self._running.returncode is None:
            self._running.kill()

    async def _keep(self) -> None:
        failures = 0
        while not self._stop.is_set():
            began = self._clock.monotonic()
            try:
                status = await self._live()
            except OSError as error:  # no process could be made: too many, or no memory
                self.why, status = f"it could not be started: {error}", 0
            helps = status != EXIT_MISCONFIGURED
            self._ended(self, self._stop.is_set() or helps)
            if self._stop.is_set() or not helps:
                return
            failures = 0 if self._clock.monotonic() - began > self._times.settled_seconds else failures + 1
            pauses = self._times.restart_seconds
            wait = pauses[min(failures - 1 if failures else 0, len(pauses) - 1)]
            await self._clock.sleep(min(wait, self._times.restart_ready_seconds) if self._was_ready else wait)

    async def _live(self) -> int:
        """One life, from start to end. Answers its exit status."""
        ours, theirs = pair()
        environment = {**os.environ, "PYTHONPATH": python_path(), CONTROL_FD: str(theirs.fileno())}
        if self._was_ever_ready:
            environment[AGAIN] = "1"
        for variable, inherited in self.role.inherits.items():
            environment[variable] = str(inherited.fileno())
        self._running = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", self.role.module, self.role.name, str(self._folder)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=2,  # standard output belongs to the supervisor
            pass_fds=(theirs.fileno(), *(each.fileno() for each in self.role.inherits.values())),
            env=environment,
            start_new_session=True,
        )
        theirs.close()
        self.pid, self.facts, self.why, self.hung = self._running.pid, None, "", False
        self.restarts += 1
        self._heartbeat = Heartbeat(self._times)
        self._line = await Line.over(ours)
        if self._stop.is_set():
            self.tell({"do": "stop"})
        watching = asyncio.create_task(self._watch())
        try:
            async for message in self._line.messages():
                self._hear(message)
            status = await self._running.wait()
        finally:
            watching.cancel()
        self._line.close()
        self._was_ready = self.facts is not None
        self._line, self.facts = None, None
        self.became_ready.clear()
        for waiting in self._asked.values():
            if not waiting.done():
                waiting.set_result(_unanswered(f"the {self.role.name} ended before it answered"))
        return status

    def _hear(self, message: Message) -> None:
        self._heartbeat.record_report()
        self.version = message.get("config", self.version)
        self.backends = message.get("backends", self.backends)
        match message.get("is"):
            case "ready":
                self.facts = message
                self._was_ever_ready = True
                self.became_ready.set()
            case "failed":
                self.why = message["why"]
            case "answered":
                waiting = self._asked.get(message["number"])
                if waiting is not None and not waiting.done():
                    waiting.set_result(message)
        self._heard(self, message)


def _unanswered(why: str) -> Message:
    return {"ok": False, "why": why, "passing": True}
