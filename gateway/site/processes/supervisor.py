"""The supervisor: starts the committer, the keeper and the workers, restarts them when they end, and stops them in
order.

Theory of operation. The supervisor holds three things: the lock of the serving process, the listening sockets, and
the metrics of all processes. Since it keeps the sockets, connections that wait to be accepted survive the death of a
worker. It opens neither the journal nor a backend.

- **Start**: the committer first, then the keeper, which registers and claims what the config adds, then the workers. A
  group is started once the one before it is ready.
- **Running**: a process that ends is restarted (`supervised.py`), unless it exits with EXIT_MISCONFIGURED: then the
  whole site stops, with its message. SIGHUP, and an edited config, start a reload (`config_reload.py`).
- **Stop** (SIGTERM, SIGINT): no new connections; the workers finish the requests under way, then the keeper stops, and
  the committer last, since all others send their last commands to it.
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
from gateway.site.processes.config_reload import ConfigReloader
from gateway.site.processes.control_channel import Message, Question
from gateway.site.processes.resource_metrics import measure_process, set_build_info
from gateway.site.processes.status_http import StatusServer
from gateway.site.processes.supervised import ProcessSpec, SupervisedProcess
from gateway.site.serve_lock import ServeLock
from gateway.site.storage.backend_trouble import combined
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


class Supervisor:
    """A site that is being served. Created by `start`; the caller then awaits `wait` and `stop`."""

    def __init__(self, folder: Path, config: Config, json_log: JsonLog, lock: ServeLock, timing: Timing) -> None:
        self.folder = folder
        self.endpoint = ""
        self.metrics = ""
        self.root_access_key = ""
        self._config = config
        self._reloading: ConfigReloader
        self._json_log = json_log
        self._lock = lock
        self._timing = timing
        self._gathered = AggregatedMetrics()
        self._sockets: list[socket.socket] = []
        self._committer = self._process(ProcessSpec("committer", COMMITTER_MODULE))
        self._keeper = self._process(ProcessSpec("keeper", KEEPER_MODULE))
        self._workers: list[SupervisedProcess] = []
        self._overview: StatusServer | None = None
        self._watching: asyncio.Task[None] | None = None
        self._stop_requested = asyncio.Event()
        self._stopping = False
        self._failed: list[str] = []

    def _process(self, role: ProcessSpec) -> SupervisedProcess:
        return SupervisedProcess(role, self.folder, self._handle_message, self._handle_end, self._timing)

    @classmethod
    async def start(
        cls,
        folder: Path,
        config: Config,
        json_log: JsonLog,
        *,
        worker_module: str,
        listen: Address,
        metrics: Address,
        timing: Timing | None = None,
    ) -> Supervisor:
        """Serve the site. Returns once requests are answered. *timing*: that of the environment, unless given.

        Raises `Misconfigured` if the site is already served, if it belongs to another user and this is root, if an
        address is in use, or if a process cannot start."""
        require_owner(folder, config)
        timing = timing or timing_from_environment()
        lock = ServeLock.acquire(folder, timing)
        self = cls(folder, config, json_log, lock, timing)
        try:
            await self._start(worker_module, listen, metrics)
        except BaseException:
            await self.stop()
            raise
        return self

    async def wait(self) -> None:
        """Return after SIGTERM or SIGINT, or when a process has ended that cannot be restarted."""
        await self._stop_requested.wait()

    def reload(self) -> None:
        """Have the workers read their TLS files again, and adopt the config if it was edited."""
        self._json_log.write(INFO, "reload")
        for worker in self._workers:
            worker.tell({"do": "reload"})
        self._reloading.ask()

    async def stop(self) -> None:
        """Stop all processes in order. Requests under way have `server.stop_seconds` to finish."""
        self._stopping = True
        if self._watching is not None:
            self._watching.cancel()
        self._json_log.write(INFO, "stopping")
        for listening in self._sockets:
            listening.close()
        seconds = self._config.server.stop_seconds + self._timing.processes.stop_seconds
        await asyncio.gather(*(worker.stop(seconds) for worker in self._workers))
        await self._keeper.stop(self._timing.processes.stop_seconds)
        await self._committer.stop(self._timing.processes.stop_seconds)
        if self._overview is not None:
            await self._overview.close()
        self._lock.release()
        self._json_log.write(INFO, "stopped")

    def _on_stop_signal(self) -> None:
        """Stop at the first signal. At the second one, kill all processes: nothing that was acknowledged is lost, but
        the clients of requests under way get no answer."""
        if self._stop_requested.is_set():
            self._json_log.write(WARNING, "stopping at once")
            for each in self._all():
                each.end_at_once()
        self._stop_requested.set()

    @property
    def failure(self) -> str:
        """Why a process cannot be restarted; empty if there is none."""
        return "; ".join(self._failed)

    # ---- starting ------------------------------------------------------------------------------------------------

    async def _start(self, worker_module: str, listen: Address, metrics: Address) -> None:
        _raise_descriptor_limit()
        set_build_info()
        self._reloading = ConfigReloader(self.folder, self._json_log, self._all, self._keeper, self._timing)
        loop = asyncio.get_running_loop()
        for caught in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(caught, self._on_stop_signal)
        loop.add_signal_handler(signal.SIGHUP, self.reload)
        count = self._config.server.workers or len(os.sched_getaffinity(0))
        self._sockets = await _listening(listen, count, self._timing)
        bound = Address(listen.host, self._sockets[0].getsockname()[1])
        scheme = "https" if self._config.server.tls_certificate else "http"
        self.endpoint = f"{scheme}://{_reachable(bound)}"
        self._overview = await StatusServer.open(
            metrics, self._metrics_text, self._health, self._readiness, self._timing
        )
        self.metrics = f"http://{_reachable(self._overview.address)}"
        for number, each in enumerate(self._sockets):
            role = ProcessSpec(f"worker {number}", worker_module, {LISTEN_FD: each})
            self._workers.append(self._process(role))
        # the keeper registers the backends that the config adds before a worker uses them
        for group in ([self._committer], [self._keeper], self._workers):
            for process in group:
                process.start()
            await asyncio.gather(*(self._until_ready(process) for process in group))
        facts = self._workers[0].facts or {}
        self.root_access_key = facts.get("root_access_key", "")
        since = self._timing.clock.wall_ns() / 1e9
        self._lock.publish({"pid": os.getpid(), "endpoint": self.endpoint, "metrics": self.metrics, "since": since})
        self._watching = asyncio.create_task(self._reloading.watch(), name="config")
        self._json_log.write(INFO, "serving", endpoint=self.endpoint, metrics=self.metrics, workers=count)

    async def _until_ready(self, process: SupervisedProcess) -> None:
        """Wait until *process* is ready. Raises `Misconfigured` if it fails, or is not ready in time."""
        waiting = [asyncio.create_task(each.wait()) for each in (process.became_ready, self._stop_requested)]
        seconds = self._timing.processes.start_seconds
        try:
            done, _ = await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
        if self.failure:
            raise Misconfigured(self.failure)
        if self._stop_requested.is_set():
            raise Misconfigured("stopped before it was ready")
        if not done:
            why = process.why or f"it was not ready within {seconds:g} s"
            raise Misconfigured(f"the {process.role.name} did not start: {why}")

    # ---- messages ------------------------------------------------------------------------------------------------

    def _handle_message(self, process: SupervisedProcess, message: Message) -> None:
        match message.get("is"):
            case "report":
                self._gathered.tell(process.role.name, message["metrics"])
            case "ready":
                self._reloading.catch_up(process)

    def _handle_end(self, process: SupervisedProcess, restarts: bool) -> None:
        """A process has ended. *restarts*: it will be restarted, unless the supervisor is stopping."""
        self._gathered.end(process.role.name)
        if self._stopping:
            return
        self._json_log.write(WARNING, "process ended", name=process.role.name, pid=process.pid, why=process.why)
        if process.hung:
            HANGS.add(1, process.role.name)
        if restarts:
            RESTARTS.add(1, process.role.name)
            return
        self._failed.append(f"the {process.role.name} cannot run: {process.why}")
        self._stop_requested.set()

    # ---- status --------------------------------------------------------------------------------------------------

    def _metrics_text(self) -> bytes:
        measure_process("supervisor")
        self._gathered.tell("supervisor", REGISTRY.snapshot())
        return self._gathered.text()

    def _all(self) -> list[SupervisedProcess]:
        return [self._committer, self._keeper, *self._workers]

    def _health(self) -> tuple[bool, dict[str, Any]]:
        """Return whether every process has reported lately, and the state of each."""
        processes = {each.role.name: each.describe() for each in self._all()}
        state: dict[str, Any] = {"config": self._reloading.config.version, "processes": processes}
        troubles = combined({each.role.name: each.backends for each in self._all()})
        state["backends"] = {
            name: troubles[name].to_dict() if name in troubles else {"up": True}
            for name in self._reloading.config.backends
        }
        if self._reloading.refused is not None:
            state["config_refused"] = self._reloading.refused
        return all(each.is_responsive for each in self._all()), state

    async def _readiness(self) -> tuple[bool, dict[str, Any]]:
        """Return whether all processes are healthy, a commit succeeds and a block can be stored and read, and
        details."""
        is_healthy, state = self._health()
        limits = self._timing.probes
        probed = await self._keeper.ask(Question.PROBE, limits.backend_seconds + limits.commit_seconds)
        details = {key: value for key, value in probed.items() if key not in {"is", "number", "config"}}
        return is_healthy and bool(probed["ok"]), {**state, "probe": details}


async def _listening(address: Address, count: int, timing: Timing) -> list[socket.socket]:
    """Return *count* sockets that listen on one port; the kernel distributes connections among them.

    Raises `Misconfigured` if the address cannot be used."""
    clock, times = timing.clock, timing.processes
    deadline = clock.monotonic() + times.address_seconds
    while True:
        try:
            return _listen(address, count)
        except OSError as error:
            # a supervisor that was killed a moment ago may have left workers that finish their requests
            if error.errno != errno.EADDRINUSE or clock.monotonic() > deadline:
                raise Misconfigured(f"cannot listen on {address}: {error.strerror or error}") from error
            await clock.sleep(times.address_try_seconds)


def _listen(address: Address, count: int) -> list[socket.socket]:
    family, kind, protocol, _, target = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as alone:
        # SO_REUSEPORT would share the port with another program that sets it; so check first that the port is free
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
    """Return the address for clients on this machine; the loopback address if *address* means every interface."""
    return str(Address({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address.host, address.host), address.port))  # noqa: S104


def _raise_descriptor_limit() -> None:
    """Raise the limit of open files to its maximum: ten thousand connections need more than a shell allows."""
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
