"""The supervisor: starts the committer, the keeper and the workers, keeps them running, and stops them in order.

It holds the lock that says that this site is being served, the listening sockets (so a worker that dies loses no
connection that waits to be accepted), and everybody's counts. It touches neither journal nor blocks.

Stopping: nothing new is accepted, the workers finish what is under way, then the keeper stops, and the committer last,
for all of them send it their last commands.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

from gateway.config import Address, Config
from gateway.errors import Misconfigured
from gateway.metrics.aggregate import AggregatedMetrics
from gateway.metrics.instruments import REGISTRY, counter
from gateway.metrics.json_log import INFO, WARNING, JsonLog
from gateway.site.ownership import require_owner
from gateway.site.processes.config_reload import Reloading
from gateway.site.processes.control_channel import Message
from gateway.site.processes.status_http import Overview
from gateway.site.processes.supervised import Process, Role
from gateway.site.serve_lock import ServeLock
from gateway.timing import Timing, timing_from_environment

LISTEN_FD = "ENTREPOT_LISTEN_FD"
BACKLOG = 1_024
COMMITTER_MODULE = "gateway.site.processes.committer"
KEEPER_MODULE = "gateway.site.processes.keeper"

RESTARTS = counter(
    "entrepot_process_restarts_total", "Processes that ended unasked and were started again.", ("process",)
)
HANGS = counter(
    "entrepot_process_hangs_total", "Processes that were killed because their event loop hung.", ("process",)
)


class Serving:
    """A site that is being served. Made by `start`; then wait for `stopped`, or ask for it with `stop`."""

    def __init__(self, folder: Path, config: Config, lines: JsonLog, lock: ServeLock, timing: Timing) -> None:
        self.folder = folder
        self.endpoint = ""
        self.metrics = ""
        self.root_access_key = ""
        self._config = config
        self._reloading: Reloading
        self._lines = lines
        self._lock = lock
        self._timing = timing
        self._gathered = AggregatedMetrics()
        self._sockets: list[socket.socket] = []
        self._committer = self._process(Role("committer", COMMITTER_MODULE))
        self._keeper = self._process(Role("keeper", KEEPER_MODULE))
        self._workers: list[Process] = []
        self._overview: Overview | None = None
        self._watching: asyncio.Task[None] | None = None
        self._stop_asked = asyncio.Event()
        self._stopping = False
        self._failed: list[str] = []

    def _process(self, role: Role) -> Process:
        return Process(role, self.folder, self._heard, self._ended, self._timing)

    @classmethod
    async def start(
        cls,
        folder: Path,
        config: Config,
        lines: JsonLog,
        *,
        worker_module: str,
        listen: Address,
        metrics: Address,
        timing: Timing | None = None,
    ) -> Serving:
        """Serve the site. Returns once requests are answered. *timing*: what the environment says, unless given.

        Raises `Misconfigured` if somebody serves it already, it is another user's and this is root, an address is
        taken, or a process says why it cannot."""
        require_owner(folder, config)
        timing = timing or timing_from_environment()
        lock = ServeLock.acquire(folder, timing)
        self = cls(folder, config, lines, lock, timing)
        try:
            await self._start(worker_module, listen, metrics)
        except BaseException:
            await self.stop()
            raise
        return self

    async def wait(self) -> None:
        """Until SIGTERM or SIGINT, or a process that says that starting it again would not help."""
        await self._stop_asked.wait()

    def reload(self) -> None:
        """The workers read their TLS files again, and the config is taken over if it was edited."""
        self._lines.write(INFO, "reload")
        for worker in self._workers:
            worker.tell({"do": "reload"})
        self._reloading.ask()

    async def stop(self) -> None:
        """Stop in order; requests under way may finish within the config's time."""
        self._stopping = True
        if self._watching is not None:
            self._watching.cancel()
        self._lines.write(INFO, "stopping")
        for listening in self._sockets:
            listening.close()
        seconds = self._config.server.stop_seconds + self._timing.processes.stop_seconds
        await asyncio.gather(*(worker.stop(seconds) for worker in self._workers))
        await self._keeper.stop(self._timing.processes.stop_seconds)
        await self._committer.stop(self._timing.processes.stop_seconds)
        if self._overview is not None:
            await self._overview.close()
        self._lock.release()
        self._lines.write(INFO, "stopped")

    @property
    def failure(self) -> str:
        """Why a process cannot go on; empty while all can."""
        return "; ".join(self._failed)

    # ---- starting ------------------------------------------------------------------------------------------------

    async def _start(self, worker_module: str, listen: Address, metrics: Address) -> None:
        _raise_descriptor_limit()
        self._reloading = Reloading(self.folder, self._lines, self._all, self._keeper, self._timing)
        loop = asyncio.get_running_loop()
        for asked in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(asked, self._stop_asked.set)
        loop.add_signal_handler(signal.SIGHUP, self.reload)
        count = self._config.server.workers or len(os.sched_getaffinity(0))
        self._sockets = await _listening(listen, count, self._timing)
        bound = Address(listen.host, self._sockets[0].getsockname()[1])
        scheme = "https" if self._config.server.tls_certificate else "http"
        self.endpoint = f"{scheme}://{_reachable(bound)}"
        self._overview = await Overview.open(metrics, self._metrics_text, self._health, self._readiness, self._timing)
        self.metrics = f"http://{_reachable(self._overview.address)}"
        for number, each in enumerate(self._sockets):
            role = Role(f"worker {number}", worker_module, {LISTEN_FD: each})
            self._workers.append(self._process(role))
        # the keeper makes known what the config names anew, before a worker uses it
        for group in ([self._committer], [self._keeper], self._workers):
            for process in group:
                process.start()
            await asyncio.gather(*(self._until_ready(process) for process in group))
        facts = self._workers[0].facts or {}
        self.root_access_key = facts.get("root_access_key", "")
        since = self._timing.clock.wall_ns() / 1e9
        self._lock.publish({"pid": os.getpid(), "endpoint": self.endpoint, "metrics": self.metrics, "since": since})
        self._watching = asyncio.create_task(self._reloading.watch(), name="config")
        self._lines.write(INFO, "serving", endpoint=self.endpoint, metrics=self.metrics, workers=count)

    async def _until_ready(self, process: Process) -> None:
        """Raises `Misconfigured` when the process says that it cannot, or nothing in a long time."""
        waiting = [asyncio.create_task(each.wait()) for each in (process.became_ready, self._stop_asked)]
        seconds = self._timing.processes.start_seconds
        try:
            done, _ = await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
        if self.failure:
            raise Misconfigured(self.failure)
        if self._stop_asked.is_set():
            raise Misconfigured("stopped before it was ready")
        if not done:
            why = process.why or f"it was not ready within {seconds:g} s"
            raise Misconfigured(f"the {process.role.name} did not start: {why}")

    # ---- hearing -------------------------------------------------------------------------------------------------

    def _heard(self, process: Process, message: Message) -> None:
        match message.get("is"):
            case "report":
                self._gathered.tell(process.role.name, message["metrics"])
            case "ready":
                self._reloading.catch_up(process)

    def _ended(self, process: Process, helps: bool) -> None:
        """A life of *process* ended; *helps*: it is started again, unless that was asked for."""
        self._gathered.end(process.role.name)
        if self._stopping:
            return
        self._lines.write(WARNING, "process ended", name=process.role.name, pid=process.pid, why=process.why)
        if process.hung:
            HANGS.add(1, process.role.name)
        if helps:
            RESTARTS.add(1, process.role.name)
            return
        self._failed.append(f"the {process.role.name} cannot run: {process.why}")
        self._stop_asked.set()

    # ---- telling -------------------------------------------------------------------------------------------------

    def _metrics_text(self) -> bytes:
        self._gathered.tell("supervisor", REGISTRY.snapshot())
        return self._gathered.text()

    def _all(self) -> list[Process]:
        return [self._committer, self._keeper, *self._workers]

    def _health(self) -> tuple[bool, dict[str, Any]]:
        """Alive: every process was heard lately."""
        processes = {each.role.name: each.describe() for each in self._all()}
        told: dict[str, Any] = {"config": self._reloading.config.version, "processes": processes}
        if self._reloading.refused is not None:
            told["config_refused"] = self._reloading.refused
        return all(each.is_responsive for each in self._all()), told

    async def _readiness(self) -> tuple[bool, dict[str, Any]]:
        """Able to do the work: all processes up, a commit goes through, a block can be stored and read."""
        well, told = self._health()
        limits = self._timing.probes
        probed = await self._keeper.ask("probe", limits.backend_seconds + limits.commit_seconds)
        found = {key: value for key, value in probed.items() if key not in {"is", "number", "config"}}
        return well and bool(probed["ok"]), {**told, "probe": found}


async def _listening(address: Address, count: int, timing: Timing) -> list[socket.socket]:
    """As many sockets on one port, among which the kernel spreads connections. Raises `Misconfigured`."""
    clock, times = timing.clock, timing.processes
    deadline = clock.monotonic() + times.address_seconds
    while True:
        try:
            return _listen(address, count)
        except OSError as error:
            # who was killed a moment ago may have left workers that finish
            if error.errno != errno.EADDRINUSE or clock.monotonic() > deadline:
                raise Misconfigured(f"cannot listen on {address}: {error.strerror or error}") from error
            await clock.sleep(times.address_try_seconds)


def _listen(address: Address, count: int) -> list[socket.socket]:
    family, kind, protocol, _, target = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as alone:
        # SO_REUSEPORT would share the port with a stranger who sets it too: so first see that it is free
        alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        alone.bind(target)
        port = alone.getsockname()[1]
        alone.listen(1)
    sockets: list[socket.socket] = []
    try:
        for _ in range(count):
            each = socket.socket(family, kind, protocol)
            sockets.append(each)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            each.bind((target[0], port, *target[2:]))
            each.listen(BACKLOG)
    except OSError:
        for each in sockets:
            each.close()
        raise
    return sockets


def _reachable(address: Address) -> str:
    """How somebody on this machine reaches an address that may mean every interface."""
    return str(Address({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address.host, address.host), address.port))  # noqa: S104


def _raise_descriptor_limit() -> None:
    """Ten thousand connections need more descriptors than a shell gives."""
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
