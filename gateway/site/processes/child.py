"""What every process under the supervisor does alike: its log, its reports each second, its stop, its failures."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import sys
import traceback
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from gateway.config import Config, load_text
from gateway.errors import CommitterGone, EntrepotError, Misconfigured
from gateway.metrics.instruments import REGISTRY
from gateway.metrics.json_log import ERROR, INFO, LEVELS, WARNING, JsonLog, take_over_logging
from gateway.metrics.loop_lag import watch_loop
from gateway.site.active_config import load_active, set_version_metric
from gateway.site.processes.control_channel import CONTROL_FD, Line, Message
from gateway.site.processes.memory import keep_freed_memory
from gateway.site.storage.refusals import TemporarilyRejected
from gateway.timing import Timing, timing_from_environment

EXIT_MISCONFIGURED = 78
"""sysexits.h's EX_CONFIG: starting again would not help."""
EXIT_FAILED = 70

AGAIN = "ENTREPOT_AGAIN"
"""Set for a process that takes the place of one which did its work: what has gone since must not keep it from that."""

Answer = Callable[[Message], Awaitable[Message]]


class Child:
    """One process's side: what it knows, and whether it should stop."""

    def __init__(self, name: str, folder: Path, config: Config, lines: JsonLog, line: Line, timing: Timing) -> None:
        self.name = name
        self.folder = folder
        self.config = config
        self.lines = lines
        self.timing = timing
        self.stopping = asyncio.Event()
        self.supervisor = os.getppid()
        self.orphaned = False
        """The supervisor is gone without having asked for a stop."""
        self.reload: Callable[[], None] = lambda: None
        """What to do when files should be read again."""
        self.answers: dict[str, Answer] = {"leaving": _nothing, "stand": _nothing, "adopt": self._adopt}
        """What to do when asked for it, once this process is ready."""
        self.adopt: Callable[[Config], Awaitable[None]] = _take
        """What to do when another config is in force."""
        self.before_report: Callable[[], None] = lambda: None
        """Called each second before the counts are told: the place for gauges."""
        self.troubles: Callable[[], dict[str, str]] = dict
        """Backends that this process cannot use as it should, and why; told with the counts."""
        self._line = line
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_ready = asyncio.Event()
        self._adopting = asyncio.Lock()
        set_version_metric(config)

    def ready(self, **facts: Any) -> None:
        """This process does its work from here on."""
        self._line.tell({"is": "ready", "config": self.config.version, **facts})
        self._is_ready.set()
        self.lines.write(INFO, "ready", pid=os.getpid(), config=self.config.version)

    @property
    def again(self) -> bool:
        """Another process did this one's work before it."""
        return AGAIN in os.environ

    def log(self, level: int, event: str, **fields: Any) -> None:
        self.lines.write(level, event, **fields)

    async def listen(self) -> None:
        """Obey the supervisor; ends, and asks for a stop, when it is gone."""
        async for message in self._line.messages():
            match message.get("do"):
                case "stop":
                    self.stopping.set()
                case "reload":
                    self.reload()
                case str(what) if "number" in message:
                    task = asyncio.create_task(self._answer(what, message))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
        self.orphaned = not self.stopping.is_set()
        self.stopping.set()

    async def report(self) -> None:
        """Tell each second what was counted, and with it that this event loop turns."""
        while True:
            self.tell_counts()
            await self.timing.clock.sleep(self.timing.processes.report_seconds)

    def tell_counts(self) -> None:
        """Report. Gauges that cannot be had are left as they were: without reports this process would count as one that
        hangs (`heartbeat`)."""
        troubles: dict[str, str] = {}
        try:
            self.before_report()
            troubles = self.troubles()
        except Exception as error:  # noqa: BLE001 (whatever is wrong with a gauge)
            self.lines.write(ERROR, "a report lacks its gauges", why=f"{type(error).__name__}: {error}")
        told = {"config": self.config.version, "metrics": REGISTRY.snapshot(), "backends": troubles}
        self._line.tell({"is": "report", **told})

    async def config_in(self, message: Message) -> Config:
        """The config that came with a message; read in a thread, since a large one takes a while."""
        return await asyncio.to_thread(load_text, message["text"], self.folder)

    async def _adopt(self, message: Message) -> Message:
        async with self._adopting:
            new = await self.config_in(message)
            await self.adopt(new)
            set_version_metric(new, self.config)
            self.config = new
            self.lines.level = LEVELS[new.log.level]
        self.lines.write(INFO, "config adopted", version=new.version)
        return {}

    async def _answer(self, what: str, message: Message) -> None:
        try:
            if what != "probe":
                await self._is_ready.wait()
            if what in self.answers:
                answer: Message = {"ok": True, **await self.answers[what](message)}
            else:
                answer = {"ok": False, "why": "it is starting", "passing": True}
        except Misconfigured as error:
            answer = {"ok": False, "why": str(error), "passing": isinstance(error, TemporarilyRejected)}
        except Exception as error:  # noqa: BLE001 (whatever goes wrong is the answer)
            answer = {"ok": False, "why": f"{type(error).__name__}: {error}", "passing": True}
        self._line.tell({"is": "answered", "number": message["number"], "config": self.config.version, **answer})


async def _nothing(message: Message) -> Message:
    return {}


async def _take(config: Config) -> None:
    """Another config, for a process to which nothing that it changes matters."""


Main = Callable[[Child], Awaitable[None]]


COLLECTED_AFTER = (50_000, 20, 100)
"""How many objects more make the garbage collector look at the youngest, and how often it looks at older ones. Rows,
answers and blocks go by their counts; what is left for it, cycles around failed requests, is little and can wait, while
looking through a committer's whole cache of rows takes milliseconds."""


def run_child(main: Main) -> None:
    """Run *main* as the process that the supervisor started with the arguments NAME and FOLDER; ends the process."""
    name, folder = sys.argv[1], Path(sys.argv[2])
    os.umask(0o077)
    import uvloop

    keep_freed_memory()
    gc.freeze()
    gc.set_threshold(*COLLECTED_AFTER)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        status = runner.run(_run(name, folder, main))
    sys.exit(status)


async def _run(name: str, folder: Path, main: Main) -> int:
    line = await Line.over(socket.socket(fileno=int(os.environ.pop(CONTROL_FD))))
    timing = timing_from_environment()  # the supervisor has read the same text
    lines = JsonLog(name, timing=timing)
    child: Child | None = None
    try:
        config = load_active(folder)
        lines.level = LEVELS[config.log.level]
        take_over_logging(lines)
        child = Child(name, folder, config, lines, line, timing)
        await _under_control(child, main)
    except EntrepotError as error:
        if child is not None and child.orphaned and isinstance(error, CommitterGone):
            lines.write(WARNING, "ended", why="the supervisor is gone, and so is the committer")
            return EXIT_FAILED
        lines.write(ERROR, "failed", why=f"{type(error).__name__}: {error}")
        line.tell({"is": "failed", "why": str(error)})
        return EXIT_MISCONFIGURED if isinstance(error, Misconfigured) else EXIT_FAILED
    except Exception as error:  # noqa: BLE001 (the process ends, and says why in its log)
        lines.write(ERROR, "failed", why=repr(error), traceback=traceback.format_exc())
        line.tell({"is": "failed", "why": f"{type(error).__name__}: {error}"})
        return EXIT_FAILED
    finally:
        await line.flush()
        line.close()
        lines.close()
    return 0


async def _under_control(child: Child, main: Main) -> None:
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, child.stopping.set)
    loop.add_signal_handler(signal.SIGINT, lambda: None)  # a terminal's ^C is the supervisor's to hear
    role = child.name.split()[0]
    measuring = watch_loop(role, child.timing.metrics)
    around = [asyncio.create_task(each) for each in (child.listen(), child.report(), measuring)]
    try:
        await main(child)
        child.tell_counts()
    finally:
        for task in around:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
