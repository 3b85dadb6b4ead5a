"""A supervised process: started, monitored, queried, stopped, and restarted when it ends.

Theory of operation. A `SupervisedProcess` is one role (such as "worker 0"); operating system processes run it one after
the other. `_keep` starts one after the other until `stop` is called, or until one exits with EXIT_MISCONFIGURED.
`_run_once` is the life of one: it reads the control channel until that ends, then waits for the exit status.

- `facts` is None until the process is ready, and again once it has ended. `became_ready` is set in between.
- A process whose event loop hangs sends no reports. `_watch` kills it, and `_keep` starts the next one.
- A question (`ask`) has a number. Its future gets the answer with that number. If the process ends first, or
  takes too long, the answer has `ok` false and `passing` true: a later try may succeed.
- The pause before a restart grows while processes end soon after their start. It stays short for a process that was
  ready, so that a successor is ready within two seconds.
"""

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
from gateway.site.processes.child import EXIT_MISCONFIGURED, REPLACEMENT
from gateway.site.processes.control_channel import CONTROL_FD, ControlChannel, Message, Question, pair
from gateway.site.storage.backend_trouble import BackendTrouble
from gateway.timing import Timing


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """How a process is started: its name, its module, and the sockets that it inherits. Each socket's descriptor is
    passed in the environment variable that is its key."""

    name: str
    module: str
    inherits: Mapping[str, socket.socket] = field(default_factory=dict)


class SupervisedProcess:
    """A role under the supervisor, which one operating system process runs at a time."""

    def __init__(
        self,
        role: ProcessSpec,
        folder: Path,
        on_message: Callable[[SupervisedProcess, Message], None],
        on_end: Callable[[SupervisedProcess, bool], None],
        timing: Timing,
    ) -> None:
        """*on_message* is called with each message of the process. *on_end* is called when a process has ended, with
        whether it will be restarted."""
        self._times, self._clock = timing.processes, timing.clock
        self.role = role
        self.pid = 0
        self.facts: Message | None = None
        """The message with which the process became ready; None while it is not ready."""
        self.why = ""
        """Why the process failed, as it reported."""
        self.restarts = -1
        self.became_ready = asyncio.Event()
        self._folder = folder
        self._on_message = on_message
        self._on_end = on_end
        self._channel: ControlChannel | None = None
        self._was_ready = False
        self._was_ever_ready = False
        self._heartbeat = Heartbeat(self._times)
        self.hung = False
        """The last process was killed because its event loop hung."""
        self._stop = asyncio.Event()
        self.version = ""
        """The version of the config that the process works under, as it reported last."""
        self.backends: dict[str, BackendTrouble] = {}
        """What is wrong with backends, by name, as the process reported last."""
        self._pending_answers: dict[int, asyncio.Future[Message]] = {}
        self._last_number = 0
        self._task: asyncio.Task[None] | None = None
        self._running: asyncio.subprocess.Process | None = None

    def start(self) -> None:
        """Run the role until `stop` is called."""
        self._task = asyncio.create_task(self._keep())

    @property
    def is_responsive(self) -> bool:
        """Whether the process is ready and has reported lately."""
        return self.facts is not None and self._heartbeat.is_responsive

    def describe(self) -> dict[str, Any]:
        """Return the state of the process, for /healthz."""
        restarts = max(0, self.restarts)
        state: dict[str, Any] = {
            "pid": self.pid,
            "well": self.is_responsive,
            "restarts": restarts,
            "config": self.version,
        }
        if self.backends:
            state["backends"] = {name: trouble._asdict() for name, trouble in self.backends.items()}
        return {**state, "why": self.why} if self.why else state

    def tell(self, message: Message) -> None:
        """Send *message* to the process, if it runs."""
        if self._channel is not None:
            self._channel.tell(message)

    async def ask(self, question: Question, seconds: float, **details: Any) -> Message:
        """Ask the process *question* and return its answer.

        If the process does not answer within *seconds*, or ends first, the answer has `ok` false, the reason in `why`,
        and `passing` true: a later try may succeed."""
        if self._channel is None:
            return _unanswered(f"the {self.role.name} is not running")
        self._last_number += 1
        number = self._last_number
        waiting: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._pending_answers[number] = waiting
        self.tell({"do": question.value, "number": number, **details})
        try:
            async with asyncio.timeout(seconds):
                return await waiting
        except TimeoutError:
            return _unanswered(f"the {self.role.name} did not answer within {seconds:g} s")
        finally:
            self._pending_answers.pop(number, None)

    async def stop(self, seconds: float) -> None:
        """Tell the process to finish, and kill it if it has not ended after *seconds*."""
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

    def end_at_once(self) -> None:
        """Kill the process, and do not start it again. `stop` returns as soon as it has ended."""
        self._stop.set()
        self.kill()

    async def _watch(self) -> None:
        """Kill the process once its event loop hangs."""
        while not self._heartbeat.is_hung(ready=self.facts is not None):
            await self._clock.sleep(self._times.report_seconds)
            self._heartbeat.tick(suspended=is_suspended(self.pid))
        self.hung, self.why = True, "its event loop hung, so it was killed"
        self.kill()

    def kill(self) -> None:
        """Kill the process, if it runs."""
        if self._running is not None and self._running.returncode is None:
            self._running.kill()

    async def _keep(self) -> None:
        failures = 0
        while not self._stop.is_set():
            began = self._clock.monotonic()
            try:
                status = await self._run_once()
            except OSError as error:  # the process could not be created: too many processes, or no memory
                self.why, status = f"it could not be started: {error}", 0
            can_restart = status != EXIT_MISCONFIGURED
            self._on_end(self, self._stop.is_set() or can_restart)
            if self._stop.is_set() or not can_restart:
                return
            failures = 0 if self._clock.monotonic() - began > self._times.settled_seconds else failures + 1
            pauses = self._times.restart_seconds
            wait = pauses[min(failures - 1 if failures else 0, len(pauses) - 1)]
            await self._clock.sleep(min(wait, self._times.restart_ready_seconds) if self._was_ready else wait)

    async def _run_once(self) -> int:
        """Run one process from its start to its end. Returns its exit status."""
        ours, theirs = pair()
        environment = {**os.environ, "PYTHONPATH": python_path(), CONTROL_FD: str(theirs.fileno())}
        if self._was_ever_ready:
            environment[REPLACEMENT] = "1"
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
        self._channel = await ControlChannel.over(ours)
        if self._stop.is_set():
            self.tell({"do": "stop"})
        watching = asyncio.create_task(self._watch())
        try:
            async for message in self._channel.messages():
                self._handle_message(message)
            status = await self._running.wait()
        finally:
            watching.cancel()
        self._channel.close()
        self._was_ready = self.facts is not None
        self._channel, self.facts = None, None
        self.became_ready.clear()
        for waiting in self._pending_answers.values():
            if not waiting.done():
                waiting.set_result(_unanswered(f"the {self.role.name} ended before it answered"))
        return status

    def _handle_message(self, message: Message) -> None:
        self._heartbeat.record_report()
        self.version = message.get("config", self.version)
        if "backends" in message:
            self.backends = {name: BackendTrouble(**each) for name, each in message["backends"].items()}
        match message.get("is"):
            case "ready":
                self.facts = message
                self._was_ever_ready = True
                self.became_ready.set()
            case "failed":
                self.why = message["why"]
            case "answered":
                waiting = self._pending_answers.get(message["number"])
                if waiting is not None and not waiting.done():
                    waiting.set_result(message)
        self._on_message(self, message)


def _unanswered(why: str) -> Message:
    return {"ok": False, "why": why, "passing": True}
