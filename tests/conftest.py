"""What every test may ask for: one running endpoint, shared by the whole run, a new site, and a folder on a disk.

Temporary folders are kept in memory (`/dev/shm`) where it has room: most tests do not ask whether bytes reach a disk,
and a sync of a shared disk takes longer than all else that they do. Tests that do ask take `disk_path`."""

import gc
import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from gateway.timing import VARIABLE
from tests.endpoint import CALM, Endpoint, started
from tests.fork_server import take_over
from tests.logs import whole_lines
from tests.new_sites import TEMPLATES, committer_in_thread, new_site
from tests.servers.moto import moto
from tests.servers.running import S3Server
from tests.servers.shared import shared_radosgw

# No test fails on a clock: a busy machine is no defect. CI draws the same examples each time. `make soak` draws
# many, except for a property that names a number of its own.
for _profile, _examples in (("entrepot", 25), ("soak", 1000)):
    settings.register_profile(
        _profile,
        max_examples=_examples,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        derandomize=os.environ.get("CI") == "true" and _profile != "soak",
        print_blob=True,
    )
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "entrepot"))


MEMORY = Path("/dev/shm")
MEMORY_BYTES_MIN = 4 << 30


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Choose the run's temporary folder. The processes of pytest-xdist inherit it from the one that starts them."""
    if TEMPLATES in os.environ:
        return
    _remove_what_ended_runs_left()
    if config.option.basetemp is None and _has_room(MEMORY):
        config.option.basetemp = tempfile.mkdtemp(prefix=f"entrepot-tests-{os.getpid()}-", dir=MEMORY)
        config.add_cleanup(lambda: _remove_if_empty(Path(config.option.basetemp)))
    memory = MEMORY if _has_room(MEMORY) else None
    templates = tempfile.mkdtemp(prefix=f"entrepot-templates-{os.getpid()}-", dir=memory)
    os.environ[TEMPLATES] = templates
    config.add_cleanup(lambda: shutil.rmtree(templates, ignore_errors=True))


SERVERS = {"radosgw_server", "moto_server", "minio_server"}
OWN_PROCESSES = {"started", "multiprocessing"}
"""What modules import whose tests start a server or processes of their own."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow what needs clients or servers of other projects, or starts processes of its own. Slow tests come
    first, since a run should not end with one process that is busy with a long one. So among them do those of modules
    that have few: the longest tests are alone in their module."""
    folder = Path(__file__).parent
    for item in items:
        callspec = getattr(item, "callspec", None)
        named = callspec.params.values() if callspec else ()
        uses = {*getattr(item, "fixturenames", ()), *(f"{value}_server" for value in named if isinstance(value, str))}
        if (
            {folder / "clients", folder / "flows"} & set(item.path.parents)
            or uses & {*SERVERS, "committer"}
            or OWN_PROCESSES & vars(getattr(item, "module", item)).keys()
        ):
            item.add_marker(pytest.mark.slow)
    slow = Counter(item.path for item in items if item.get_closest_marker("slow"))
    items.sort(key=lambda item: slow[item.path] if item.get_closest_marker("slow") else slow.total())


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Fork the committers that clients in this process start, and let the garbage collector pass over what the whole
    run needs: modules and tests."""
    take_over()
    gc.collect()
    gc.freeze()


def _remove_what_ended_runs_left() -> None:
    """Free the memory of runs that were killed, or whose failed tests left files: those stay until the next run."""
    for folder in MEMORY.glob("entrepot-t*-*-*"):
        process = folder.name.split("-")[2]
        if process.isdigit() and not Path("/proc", process).exists():
            shutil.rmtree(folder, ignore_errors=True)


def _has_room(folder: Path) -> bool:
    try:
        disk = os.statvfs(folder)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize >= MEMORY_BYTES_MIN


def _remove_if_empty(folder: Path) -> None:
    """Remove a run's temporary folder, unless a failed test left files there to be looked at."""
    if not any(path.is_file() for path in folder.rglob("*")):
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def disk_path() -> Iterator[Path]:
    """An empty folder on a disk: for tests whose subject is what the file system of a disk does."""
    with tempfile.TemporaryDirectory(prefix="entrepot-disk-") as folder:
        yield Path(folder)


@pytest.fixture
def new_folder(tmp_path: Path) -> Iterator[Path]:
    """A new site whose committer runs in a thread of this process."""
    folder = new_site(tmp_path / "site")
    with committer_in_thread(folder):
        yield folder


@pytest.fixture(scope="session")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    """A server over a fresh site; or, to try the tests themselves on another S3, the one that
    ENTREPOT_TEST_ENDPOINT names, with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."""
    base: Path = tmp_path_factory.mktemp("endpoint")
    if url := os.environ.get("ENTREPOT_TEST_ENDPOINT"):
        access_key, secret_key = os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
        yield Endpoint(url, access_key, secret_key, "us-east-1", base, base / "log")
        return
    with started(base / "site", environment={VARIABLE: CALM}) as (running, _):
        yield running
    faults = [line for line in whole_lines(running.log.read_bytes()) if is_own_fault(line)]
    assert not faults, f"the server wrote what no client may ever cause: {faults[:5]}"
    assert running.secret_key not in running.log.read_text()


@pytest.fixture(scope="session")
def moto_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A moto that the tests of this process share: for all processes of a run one is too slow."""
    with moto(tmp_path_factory.mktemp("moto")) as server:
        yield server


@pytest.fixture(scope="session")
def radosgw_server() -> Iterator[S3Server]:
    """A radosgw that all tests of the run share: starting it takes many seconds."""
    with shared_radosgw() as server:
        yield server


def is_own_fault(line: str) -> bool:
    """Whether a line of a server's log tells of an error of its own: also one that is no JSON, as a traceback is."""
    try:
        fields = json.loads(line)
    except ValueError:
        return True
    # 501 answers what was asked for and is not built.
    return bool(fields["level"] == "error" or (fields.get("status", 0) >= 500 and fields["status"] != 501))
