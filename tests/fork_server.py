"""A fork server for tests: it starts Entrepot's processes without importing Entrepot each time.

Imports take most of the time of a short command, and of the start of a site with its four processes. So each test
process that starts processes of Entrepot keeps one fork server. That server is a process without threads which has
imported everything that Entrepot's processes import. It forks one process for each request. The forked process has the
environment, arguments, working directory, descriptors and session that an executed process would have. It runs the same
module or command, and ends as a Python process ends. Its parent is the fork server, which sends the exit status to the
process that asked for the fork.

`Forked` replaces `subprocess.Popen`. `take_over` makes that replacement in the processes that run tests, and in forked
processes, so the processes that they start in turn are forked, too. Tests of packaging, memory or the first start, and
soaks, run the real commands.
"""

from __future__ import annotations

import ast
import asyncio
import atexit
import contextlib
import gc
import importlib
import importlib.util
import json
import os
import pkgutil
import select
import socket
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ADDRESS = "ENTREPOT_TEST_FORK_SERVER"
"""The environment variable that names the fork server's socket to forked processes."""
COMMAND_LINE = "from gateway.cli.main import main; main()"
ENTRIES = ("gateway.site.processes.committer", "gateway.site.processes.keeper", "gateway.cli.worker")
"""The modules that Entrepot's processes run by `python -P -m`. Each process executes its module as `__main__`."""
REQUEST_BYTES_MAX = 4 << 20
TITLE_BYTES = 8192
"""Length of the fork server's own command line, over which a forked process writes its arguments for /proc."""
_FIRST_DESCRIPTOR = 500
_PYTHON = sys.executable
"""The interpreter of the fork server. What a test puts in its place is executed."""

_popen = subprocess.Popen
_servers: dict[str, tuple[str, subprocess.Popen[bytes]]] = {}


def can_fork(arguments: Sequence[Any]) -> bool:
    """Whether *arguments* run one of Entrepot's commands or processes."""
    given = [str(each) for each in arguments]
    return given[:1] == [_PYTHON] and (
        given[1:3] == ["-c", COMMAND_LINE] or (given[1:3] == ["-P", "-m"] and given[3] in ENTRIES)
    )


class Forked(_popen[Any]):
    """A `subprocess.Popen` that forks for arguments that `can_fork` allows, and executes all others."""

    _status_fd = -1

    def _execute_child(
        self, args: Any, executable: Any, preexec_fn: Any, close_fds: bool, pass_fds: Sequence[int], cwd: Any, env: Any,
        startupinfo: Any, creationflags: Any, shell: bool, p2cread: int, p2cwrite: int, c2pread: int, c2pwrite: int,
        errread: int, errwrite: int, *rest: Any,
    ) -> None:  # fmt: skip
        if not can_fork(args):
            super()._execute_child(  # type: ignore[misc]
                args, executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo, creationflags, shell,
                p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite, *rest,
            )  # fmt: skip
            return
        environment = dict(os.environ if env is None else env)
        address = _address(environment)
        request = {
            "arguments": [str(each) for each in args],
            "environment": environment | {ADDRESS: address},
            "folder": os.fspath(cwd) if cwd is not None else os.getcwd(),
            "targets": [0, 1, 2, *pass_fds],
            "session": bool(rest[5]),
            "parent": os.getpid(),
        }
        standard = [own if given == -1 else given for own, given in enumerate((p2cread, c2pwrite, errwrite))]
        ours, theirs = os.pipe()
        try:
            self.pid = _ask(address, request, [theirs, *standard, *pass_fds])
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
            self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)  # type: ignore[attr-defined]
        self._status_fd = ours
        self._child_created = True

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if self._status_fd == -1:
            answered: tuple[int, int] = super()._try_wait(wait_flags)  # type: ignore[misc]
            return answered
        if wait_flags and not select.select([self._status_fd], [], [], 0)[0]:
            return 0, 0
        told = os.read(self._status_fd, 16)
        return self.pid, int(told) if told else 255 << 8

    def _internal_poll(self, _deadstate: Any = None, *rest: Any) -> int | None:
        if self._status_fd == -1:
            return super()._internal_poll(_deadstate, *rest)  # type: ignore[misc,no-any-return]
        if self.returncode is None:
            pid, status = self._try_wait(os.WNOHANG)
            if pid == self.pid:
                self._handle_exitstatus(status)  # type: ignore[attr-defined]
        return self.returncode

    def __del__(self, *rest: Any) -> None:
        if self._status_fd != -1:
            os.close(self._status_fd)
            self._status_fd = -1
            return
        super().__del__(*rest)  # type: ignore[misc]


# ---- asking ---------------------------------------------------------------------------------------------------------


def _address(environment: Mapping[str, str]) -> str:
    """The socket of the fork server for this environment. There is one server for each value of PYTHONPATH, which
    Python reads when it starts: a test may put a `sitecustomize` there."""
    path = environment.get("PYTHONPATH", "")
    if (inherited := os.environ.get(ADDRESS)) is not None:
        return inherited
    if path not in _servers or _servers[path][1].poll() is not None:
        _servers[path] = _start(path)
    return _servers[path][0]


def _start(path: str) -> tuple[str, subprocess.Popen[bytes]]:
    folder = tempfile.mkdtemp(prefix="entrepot-fork-")
    address = f"{folder}/socket"
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)
    listening.listen(64)
    root = str(Path(__file__).resolve().parent.parent)
    code = f"import sys; sys.path[0] = {root!r}; from tests.fork_server import main; main(sys.argv[1])"
    process = _popen(
        [sys.executable, "-c", code, str(listening.fileno()), "-" * TITLE_BYTES],
        env=environment, stdin=subprocess.PIPE, pass_fds=[listening.fileno()], start_new_session=True,
    )  # fmt: skip
    listening.close()
    atexit.register(_stop, process, folder)
    return address, process


def _stop(process: subprocess.Popen[bytes], folder: str) -> None:
    process.kill()
    process.wait()
    Path(folder, "socket").unlink(missing_ok=True)
    Path(folder).rmdir()


def _ask(address: str, request: Mapping[str, Any], descriptors: Sequence[int]) -> int:
    """Send one request. Answers the id of the forked process."""
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(address)
        data = json.dumps(request).encode()
        socket.send_fds(line, [len(data).to_bytes(4)], list(descriptors))
        line.sendall(data)
        answer = line.recv(8)
    if len(answer) < 8:
        raise OSError("the fork server for tests did not fork")
    return int.from_bytes(answer)


# ---- serving --------------------------------------------------------------------------------------------------------

Run = Callable[[], None]


def serve(listening: socket.socket) -> Run:
    """Fork a process for each request. In a forked process this returns the function that it is to run. In the server
    it never returns, and exits when the process that started the server is gone."""
    poll = select.poll()
    poll.register(listening, select.POLLIN)
    poll.register(0, select.POLLIN)
    living: dict[int, tuple[int, int]] = {}
    while True:
        for descriptor, _ in poll.poll():
            if descriptor == 0:
                os._exit(0)
            if descriptor == listening.fileno():
                line, _ = listening.accept()
                with line:
                    forked = _fork(line)
                if isinstance(forked, tuple):
                    pid, status = forked
                    ended = os.pidfd_open(pid)
                    living[ended] = pid, status
                    poll.register(ended, select.POLLIN)
                elif forked is not None:
                    listening.close()
                    return forked
            elif descriptor in living:
                poll.unregister(descriptor)
                pid, status = living.pop(descriptor)
                os.close(descriptor)
                told = str(os.waitpid(pid, 0)[1]).encode()
                with contextlib.suppress(BrokenPipeError):
                    os.write(status, told)
                os.close(status)


def _fork(line: socket.socket) -> tuple[int, int] | Run | None:
    """Read one request and fork. In the server: the process id and the pipe for its status, or None if the request is
    incomplete. In the forked process: the function to run."""
    head, descriptors, _, _ = socket.recv_fds(line, 4, 64)
    length, data = int.from_bytes(head), b""
    while len(data) < length and (chunk := line.recv(REQUEST_BYTES_MAX)):
        data += chunk
    if not data or len(data) < length:  # the requester was killed meanwhile
        for each in descriptors:
            os.close(each)
        return None
    request = json.loads(data)
    pid = os.fork()
    if pid:
        for each in descriptors[1:]:
            os.close(each)
        with contextlib.suppress(
            OSError
        ):  # the requester may be gone; the forked process ends by itself, as it would then
            line.sendall(pid.to_bytes(8))
        return pid, descriptors[0]
    return lambda: _become(request, descriptors[1:])


def _become(request: Mapping[str, Any], descriptors: Sequence[int]) -> None:
    """Turn this forked process into the one that *request* describes, and run it."""
    if request["session"]:
        os.setsid()
    _place(descriptors, request["targets"])
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    arguments: list[str] = request["arguments"]
    _entitle(arguments)
    os.getppid = lambda: request["parent"]
    from gateway import failpoints

    importlib.reload(failpoints)  # it reads the environment when it is imported
    take_over()
    if arguments[1] == "-c":
        sys.argv = ["-c", *arguments[3:]]
        from gateway.cli.main import main

        main()
        return
    module = arguments[3]
    found = importlib.util.find_spec(module)
    assert found is not None
    assert found.origin is not None
    sys.argv = [found.origin, *arguments[4:]]
    executed = types.ModuleType("__main__")
    executed.__dict__.update(__file__=found.origin, __spec__=found, __package__=module.rpartition(".")[0])
    sys.modules["__main__"] = executed
    exec(compile(Path(found.origin).read_bytes(), found.origin, "exec"), executed.__dict__)


def _place(descriptors: Sequence[int], targets: Sequence[int]) -> None:
    """Give each received descriptor its number in *targets*, and close all others."""
    high = [os.dup2(each, _FIRST_DESCRIPTOR + at) for at, each in enumerate(descriptors)]
    os.closerange(3, _FIRST_DESCRIPTOR)
    for each, target in zip(high, targets, strict=True):
        os.dup2(each, target)
    os.closerange(_FIRST_DESCRIPTOR, _FIRST_DESCRIPTOR + len(high))


def _entitle(arguments: Sequence[str]) -> None:
    """Make /proc show *arguments* as this process's command line."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    shown = b"".join(each.encode() + b"\0" for each in arguments)[: end - start]
    with open("/proc/self/mem", "r+b", buffering=0) as memory:
        memory.seek(start)
        memory.write(shown.ljust(end - start, b"\0"))


class _Adapted:
    """The part of `asyncio.subprocess.Process` that Entrepot uses, over a `Forked`."""

    def __init__(self, forked: Forked) -> None:
        self._forked = forked
        self.pid = forked.pid

    @property
    def returncode(self) -> int | None:
        return self._forked.poll()

    async def wait(self) -> int:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        status = os.dup(self._forked._status_fd)
        loop.add_reader(status, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(status)
            os.close(status)
        return self._forked.wait()

    def kill(self) -> None:
        self._forked.kill()


def take_over() -> None:
    """Make this process start Entrepot's own processes through the fork server from here on."""
    execute = asyncio.create_subprocess_exec

    async def fork_or_execute(*arguments: Any, **options: Any) -> Any:
        if can_fork(arguments):
            return _Adapted(Forked(arguments, **options))
        return await execute(*arguments, **options)

    asyncio.create_subprocess_exec = fork_or_execute  # type: ignore[assignment]
    subprocess.Popen = Forked  # type: ignore[misc]


def preload() -> None:
    """Import everything that Entrepot's processes import."""
    import gateway.cli
    import gateway.cli.main

    for each in pkgutil.iter_modules(gateway.cli.__path__, "gateway.cli."):
        if each.name not in ENTRIES:
            importlib.import_module(each.name)
    for entry in ENTRIES:
        found = importlib.util.find_spec(entry)
        assert found is not None
        assert found.origin is not None
        for node in ast.walk(ast.parse(Path(found.origin).read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                importlib.import_module(node.module)
    for name in ("uvloop", "backends.s3.backend", "gateway.site.admin.backend_check"):
        importlib.import_module(name)


def main(descriptor: str) -> None:
    """Serve forks on the socket *descriptor*. A forked process goes on here, and runs what its request asked for."""
    listening = socket.socket(fileno=int(descriptor))
    preload()
    gc.collect()
    gc.freeze()
    serve(listening)()
