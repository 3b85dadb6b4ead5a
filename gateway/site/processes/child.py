"""A process under the supervisor: what committer, keeper and workers share.

Theory of operation. The supervisor starts a process with the arguments NAME and FOLDER and an end of a control channel.
`run_child` loads the config in force, makes a `Child`, and runs the process's `Role`. The role calls `Child.ready` once
it works. Meanwhile `Child` sends a report every second: the metrics, and with them the fact that the event loop runs.

- The supervisor's questions (`control_channel.Question`) go to the role. Until the process is ready they wait, except
  PROBE, which gets the answer that the process is starting.
- The process stops when the supervisor tells it to, or when the channel ends because the supervisor has died
  (`orphaned`). `stopping` is set then, and the role returns from `run`.
- An error that escapes `run` ends the process. It is logged and sent to the supervisor. The exit status says whether
  starting the process again can help.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import sys
import traceback
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import Any

from gateway.config import Config, load_text
from gateway.errors import CommitterGone, EntrepotError, Misconfigured
from gateway.metrics.instruments import REGISTRY
from gateway.metrics.json_log import ERROR, INFO, WARNING, JsonLog, take_over_logging
from gateway.metrics.loop_lag import watch_loop
from gateway.site.active_config import load_active, set_version_metric
from gateway.site.processes.control_channel import CONTROL_FD, ControlChannel, Message, Question
from gateway.site.processes.memory import keep_freed_memory
from gateway.site.processes.resource_metrics import measure_process
from gateway.site.storage.backend_trouble import BackendTrouble
from gateway.site.storage.refusals import TemporarilyRejected
from gateway.timing import Timing, timing_from_environment

EXIT_MISCONFIGURED = 78
"""EX_CONFIG of sysexits.h: starting the process again does not help."""
EXIT_FAILED = 70

REPLACEMENT = "ENTREPOT_AGAIN"
"""The environment variable of a process that replaces one which was ready. Such a process starts even if a backend is
missing."""


class Role(ABC):
    """What a kind of process does. `Child` calls these methods."""

    @abstractmethod
    async def run(self, child: Child) -> None:
        """Do the work of the process until `child.stopping` is set. Calls `child.ready` once it works."""

    async def answer(self, question: Question, message: Message) -> Message | None:
        """Answer a question of the supervisor other than ADOPT; None while that is not possible yet.

        Raises `Misconfigured` for a config that cannot be adopted."""
        return None if question is Question.PROBE else {}

    async def adopt(self, config: Config) -> None:  # noqa: B027 (not every role depends on the config)
        """Work under *config* from now on."""

    def report(self) -> dict[str, BackendTrouble]:
        """Update the gauges of this process, before each report. Returns what is wrong with backends, by
        name."""
        return {}

    def reload_files(self) -> None:  # noqa: B027 (not every role has files)
        """Read files again that the config names."""


class Child:
    """The state of a process that its role and the supervisor share."""

    def __init__(
        self,
        name: str,
        folder: Path,
        config: Config,
        role: Role,
        json_log: JsonLog,
        channel: ControlChannel,
        timing: Timing,
    ) -> None:
        self.name = name
        self.folder = folder
        self.config = config
        self.json_log = json_log
        self.timing = timing
        self.stopping = asyncio.Event()
        self.supervisor = os.getppid()
        self.orphaned = False
        """The supervisor has died without asking this process to stop."""
        self._role = role
        self._channel = channel
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_ready = asyncio.Event()
        self._adopting = asyncio.Lock()
        set_version_metric(config)

    def ready(self, **facts: Any) -> None:
        """Report that this process is ready. *facts*: further fields of the report."""
        self._channel.tell({"is": "ready", "config": self.config.version, **facts})
        self._is_ready.set()
        self.json_log.write(INFO, "ready", pid=os.getpid(), config=self.config.version)

    @property
    def is_replacement(self) -> bool:
        """Whether this process replaces one that was ready before."""
        return REPLACEMENT in os.environ

    def log(self, level: int, event: str, **fields: Any) -> None:
        """Log *event* with *fields*."""
        self.json_log.write(level, event, **fields)

    async def listen(self) -> None:
        """Process the supervisor's messages. Returns, and sets `stopping`, when the channel ends."""
        async for message in self._channel.messages():
            match message.get("do"):
                case "stop":
                    self.stopping.set()
                case "reload":
                    self._role.reload_files()
                case str(word) if "number" in message:
                    task = asyncio.create_task(self._answer(word, message))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
        self.orphaned = not self.stopping.is_set()
        self.stopping.set()

    async def report(self) -> None:
        """Send a report every second, until cancelled."""
        while True:
            self.send_report()
            await self.timing.clock.sleep(self.timing.processes.report_seconds)

    def send_report(self) -> None:
        """Send a report. If the gauges cannot be updated, it is sent all the same: a process without reports counts as
        one whose event loop hangs (`heartbeat`)."""
        troubles: dict[str, BackendTrouble] = {}
        try:
            measure_process(self.name)
            troubles = self._role.report()
        except Exception as error:  # noqa: BLE001 (whatever is wrong with a gauge)
            self.json_log.write(ERROR, "a report lacks its gauges", why=f"{type(error).__name__}: {error}")
        backends = {name: trouble._asdict() for name, trouble in troubles.items()}
        report = {"config": self.config.version, "metrics": REGISTRY.snapshot(), "backends": backends}
        self._channel.tell({"is": "report", **report})

    async def config_in(self, message: Message) -> Config:
        """Return the config in a message. It is parsed in a thread, since a large one takes a while."""
        return await asyncio.to_thread(load_text, message["text"], self.folder)

    async def _adopt(self, message: Message) -> Message:
        async with self._adopting:
            new = await self.config_in(message)
            await self._role.adopt(new)
            set_version_metric(new, self.config)
            self.config = new
            self.json_log.configure(new.log.level, new.log.format)
        self.json_log.write(INFO, "config adopted", version=new.version)
        return {}

    async def _answer(self, word: str, message: Message) -> None:
        try:
            question = Question(word)  # an unknown word, of another version's supervisor, is answered as an error
            if question is not Question.PROBE:
                await self._is_ready.wait()
            answering = self._adopt(message) if question is Question.ADOPT else self._role.answer(question, message)
            details = await answering
            answer: Message = {"ok": False, "why": "it is starting", "passing": True}
            if details is not None:
                answer = {"ok": True, **details}
        except Misconfigured as error:
            answer = {"ok": False, "why": str(error), "passing": isinstance(error, TemporarilyRejected)}
        except Exception as error:  # noqa: BLE001 (whatever goes wrong is the answer)
            answer = {"ok": False, "why": f"{type(error).__name__}: {error}", "passing": True}
        self._channel.tell({"is": "answered", "number": message["number"], "config": self.config.version, **answer})


COLLECTED_AFTER = (50_000, 20, 100)
"""Thresholds of the cyclic garbage collector (`gc.set_threshold`). Reference counts free rows, answers and blocks. Only
cycles around failed requests are left to the collector, and these can wait, while a walk through a committer's whole
cache of rows takes milliseconds."""


def run_child(role: Role) -> None:
    """Run *role* in this process, which the supervisor started with the arguments NAME and FOLDER, and exit."""
    name, folder = sys.argv[1], Path(sys.argv[2])
    os.umask(0o077)
    import uvloop

    keep_freed_memory()
    gc.freeze()
    gc.set_threshold(*COLLECTED_AFTER)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        status = runner.run(_run(name, folder, role))
    sys.exit(status)


async def _run(name: str, folder: Path, role: Role) -> int:
    """Return the exit status."""
    channel = await ControlChannel.over(socket.socket(fileno=int(os.environ.pop(CONTROL_FD))))
    timing = timing_from_environment()  # the supervisor has checked the same variable
    json_log = JsonLog(name, timing=timing)
    child: Child | None = None
    try:
        config = load_active(folder)
        json_log.configure(config.log.level, config.log.format)
        take_over_logging(json_log)
        child = Child(name, folder, config, role, json_log, channel, timing)
        await _run_role(child, role)
    except EntrepotError as error:
        if child is not None and child.orphaned and isinstance(error, CommitterGone):
            json_log.write(WARNING, "ended", why="the supervisor and the committer have ended")
            return EXIT_FAILED
        json_log.write(ERROR, "failed", why=f"{type(error).__name__}: {error}")
        channel.tell({"is": "failed", "why": str(error)})
        return EXIT_MISCONFIGURED if isinstance(error, Misconfigured) else EXIT_FAILED
    except Exception as error:  # noqa: BLE001 (the process ends, and its log says why)
        json_log.write(ERROR, "failed", why=repr(error), traceback=traceback.format_exc())
        channel.tell({"is": "failed", "why": f"{type(error).__name__}: {error}"})
        return EXIT_FAILED
    finally:
        await channel.flush()
        channel.close()
        json_log.close()
    return 0


async def _run_role(child: Child, role: Role) -> None:
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, child.stopping.set)
    loop.add_signal_handler(signal.SIGINT, lambda: None)  # the supervisor handles ^C of a terminal
    kind = child.name.split()[0]
    measuring = watch_loop(kind, child.timing.metrics)
    around = [asyncio.create_task(each) for each in (child.listen(), child.report(), measuring)]
    try:
        await role.run(child)
        child.send_report()
    finally:
        for task in around:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
