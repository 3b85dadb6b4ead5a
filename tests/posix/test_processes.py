"""Many processes on one site: forked and spawned loaders, a gateway beside them, and a committer that is killed."""

from __future__ import annotations

import contextlib
import hashlib
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gateway.config import load
from gateway.journal.paths import JournalPaths
from gateway.posix.fsspec.filesystem import EntrepotFileSystem
from gateway.site.paths import journal_folder
from tests.endpoint import command_environment, run_entrepot, started
from tests.new_sites import new_site
from tests.posix.conftest import IN_PROCESS
from tests.posix.journal_view import sessions_of, uploads_of
from tests.site.running import client, until

WAYS = ("fork", "spawn")


def loaded(fs: EntrepotFileSystem, bucket: str, worker: int) -> list[str]:
    """What a data loader's worker does: it reads its share, and writes what it made of it."""
    found = []
    for path in fs.find(f"{bucket}/in")[worker::2]:
        digest = hashlib.sha256(fs.cat_file(path)).hexdigest()
        fs.pipe_file(path.replace("/in/", "/out/"), digest.encode())
        with fs.open(path) as opened:
            opened.seek(-10, os.SEEK_END)
            assert len(opened.read()) == 10
        found.append(digest)
    return found


class DataSet:
    """As PyTorch's: made in the parent, used in workers that are forked or get it pickled."""

    def __init__(self, fs: EntrepotFileSystem, bucket: str) -> None:
        self.fs = fs
        self.bucket = bucket

    def __call__(self, worker: int) -> list[str]:
        return loaded(self.fs, self.bucket, worker)


@pytest.fixture
def inputs(fs, bucket) -> dict[str, bytes]:
    values = {f"{bucket}/in/{number:02}": os.urandom(1000 * number + 10) for number in range(40)}
    fs.pipe(values)
    fs.cat_file(f"{bucket}/in/00")
    return values


@pytest.mark.slow
@pytest.mark.parametrize("start", WAYS)
def test_a_loaders_workers_read_and_write_with_the_file_system_of_their_parent(fs, bucket, inputs, start):
    with multiprocessing.get_context(start).Pool(2) as pool:
        asked = pool.map_async(DataSet(fs, bucket), range(2))
        for number in range(50):  # while the parent goes on itself
            fs.pipe_file(f"{bucket}/parent/{number}", b"%d" % number)
        found = [digest for each in asked.get(timeout=900) for digest in each]
    wanted = {path.replace("/in/", "/out/"): hashlib.sha256(data).hexdigest() for path, data in inputs.items()}
    assert sorted(found) == sorted(wanted.values())
    assert {path: data.decode() for path, data in fs.cat(f"{bucket}/out", recursive=True).items()} == wanted
    assert len(fs.find(f"{bucket}/parent")) == 50


def test_a_forked_child_publishes_nothing_of_what_its_parent_is_writing(fs, folder, bucket):
    opened = fs.open(f"{bucket}/x", "wb")
    opened.write(b"the parent's ")
    child = multiprocessing.get_context("fork").Process(target=closes, args=(opened,))
    child.start()
    child.join(120)
    assert child.exitcode == 0
    assert not fs.exists(f"{bucket}/x")
    opened.write(b"bytes")
    opened.close()
    assert fs.cat_file(f"{bucket}/x") == b"the parent's bytes"
    assert uploads_of(folder, bucket) == 0


def closes(opened) -> None:
    with pytest.raises(ValueError, match="before a fork"):
        opened.write(b"the child's")
    opened.close()


def test_a_parent_goes_on_after_many_forks(fs, bucket):
    fs.pipe_file(f"{bucket}/x", os.urandom(3 << 20))
    wanted = hashlib.sha256(fs.cat_file(f"{bucket}/x")).hexdigest()
    context = multiprocessing.get_context("fork")
    for _ in range(3):
        children = [context.Process(target=reads, args=(fs, f"{bucket}/x", wanted)) for _ in range(2)]
        for each in children:
            each.start()
        fs.pipe_file(f"{bucket}/y", b"meanwhile")
        for each in children:
            each.join(120)
        assert [each.exitcode for each in children] == [0, 0]
    assert hashlib.sha256(fs.cat_file(f"{bucket}/x")).hexdigest() == wanted


def reads(fs: EntrepotFileSystem, path: str, wanted: str) -> None:
    assert hashlib.sha256(fs.cat_file(path)).hexdigest() == wanted
    fs.pipe_file(f"{path}-{os.getpid()}", b"by a child")


# --- beside a gateway -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory):
    """A gateway of this module's own: its site is also opened here."""
    with started(tmp_path_factory.mktemp("served") / "site") as (running, _):
        yield running


def test_fsspec_and_boto3_see_the_same_at_once(endpoint):
    fs, s3 = EntrepotFileSystem(site=endpoint.dir), client(endpoint)
    s3.create_bucket(Bucket="both")
    data = os.urandom(6 << 20)

    def by_s3(number: int) -> None:
        s3.put_object(Bucket="both", Key=f"s3/{number}", Body=b"%d" % number)
        assert fs.cat_file(f"both/s3/{number}") == b"%d" % number

    def by_fsspec(number: int) -> None:
        fs.pipe_file(f"both/fs/{number}", b"%d" % number)
        assert s3.get_object(Bucket="both", Key=f"fs/{number}")["Body"].read() == b"%d" % number

    with ThreadPoolExecutor(8) as pool:
        done = [pool.submit(work, number) for number in range(100) for work in (by_s3, by_fsspec)]
        for each in done:
            each.result()
    with fs.open("both/large", "wb") as opened:
        opened.write(data)
    answer = s3.get_object(Bucket="both", Key="large")
    assert answer["Body"].read() == data
    assert answer["ETag"] == f'"{fs.info("both/large")["ETag"]}"'
    fs.mv("both/fs", "both/moved")
    listed = s3.list_objects_v2(Bucket="both", Prefix="moved/")
    assert [each["Key"] for each in listed["Contents"] if not each["Key"].endswith("/")] == [
        path.removeprefix("both/") for path in fs.find("both/moved")
    ]
    s3.put_object(Bucket="both", Key="meta", Body=b"", Metadata={"run": "7"}, ContentType="text/plain")
    assert fs.metadata("both/meta") == {"run": "7"}
    assert fs.info("both/meta")["ContentType"] == "text/plain"
    fs.close()


@pytest.mark.slow
@pytest.mark.parametrize("start", WAYS)
def test_loaders_work_beside_a_gateway(endpoint, start):
    fs, s3 = EntrepotFileSystem(site=endpoint.dir), client(endpoint)
    bucket = f"loaded-by-{start}"
    fs.mkdir(bucket)
    fs.pipe({f"{bucket}/in/{number:02}": os.urandom(20_000) for number in range(20)})
    with multiprocessing.get_context(start).Pool(2) as pool:
        asked = pool.map_async(DataSet(fs, bucket), range(2))
        for number in range(20):
            s3.put_object(Bucket=bucket, Key=f"s3/{number}", Body=b"%d" % number)
        found = [digest for each in asked.get(timeout=900) for digest in each]
    listed = s3.list_objects_v2(Bucket=bucket, Prefix="out/")["Contents"]
    assert sorted(s3.get_object(Bucket=bucket, Key=each["Key"])["Body"].read().decode() for each in listed) == sorted(
        found
    )
    assert len(found) == 20
    fs.close()


# --- the committer ----------------------------------------------------------------------------------------------------


def committer_of(folder: Path) -> int:
    """The process that holds the journal's lock, 0 while nobody does."""
    said = JournalPaths(journal_folder(folder, load(folder))).lock.read_text().strip()
    with contextlib.suppress(ValueError, ProcessLookupError):
        os.kill(int(said), 0)
        return int(said)
    return 0


@pytest.fixture
def lonely(tmp_path) -> Iterator[tuple[Path, EntrepotFileSystem]]:
    """A site that nobody serves, with a bucket `bay`."""
    new_site(tmp_path / "site")
    fs = EntrepotFileSystem(site=tmp_path / "site", skip_instance_cache=True)
    fs.mkdir("bay")
    yield tmp_path / "site", fs
    fs.close()


def test_a_client_whose_committer_is_killed_starts_another_and_loses_nothing(lonely):
    folder, fs = lonely
    first = committer_of(folder)
    assert first
    kept = {}

    def write(number: int) -> None:
        fs.pipe_file(f"bay/{number}", b"%d" % number, mode="create")
        kept[f"bay/{number}"] = b"%d" % number

    with ThreadPoolExecutor(4) as pool:
        writing = [pool.submit(write, number) for number in range(400)]
        for wanted in (50, 200):
            until(lambda wanted=wanted: len(kept) > wanted, "writes")
            os.kill(until(lambda: committer_of(folder), "a committer"), signal.SIGKILL)
        for each in writing:
            each.result()
    assert committer_of(folder) != first
    assert fs.cat("bay", recursive=True) == kept
    assert len(kept) == 400, "an answer was lost, or given twice"


def test_a_client_goes_on_when_the_gateway_beside_it_stops(tmp_path):
    with started(tmp_path / "site") as (running, _):
        fs = EntrepotFileSystem(site=running.dir, skip_instance_cache=True)
        fs.mkdir("bay")
        fs.pipe_file("bay/x", b"served")
    fs.pipe_file("bay/y", b"alone")
    assert fs.cat("bay", recursive=True) == {"bay/x": b"served", "bay/y": b"alone"}
    with started(tmp_path / "site") as (running, _):
        assert client(running).get_object(Bucket="bay", Key="y")["Body"].read() == b"alone"
        fs.pipe_file("bay/z", b"served again")
        assert client(running).get_object(Bucket="bay", Key="z")["Body"].read() == b"served again"
        fs.close()


def test_a_program_that_ends_leaves_no_committer_behind_also_after_a_fork(tmp_path):
    new_site(tmp_path / "site")
    program = textwrap.dedent(
        """
        import multiprocessing, os, sys, time
        from gateway.posix.fsspec.filesystem import EntrepotFileSystem

        fs = EntrepotFileSystem(site=sys.argv[1])
        fs.mkdir("bay")
        fs.pipe_file("bay/x", b"1")
        if not os.fork():
            os.closerange(0, 3)
            time.sleep(600)
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "site")],
        env=command_environment(),
        stdout=subprocess.PIPE,
        start_new_session=True,
        timeout=600,
    )
    try:
        assert done.returncode == 0
        until(lambda: not committer_of(tmp_path / "site"), "the committer to end, though a child lives")
    finally:
        end_group_of(tmp_path)


def end_group_of(tmp_path: Path) -> None:
    """End the child that the program left, which says its site in its command line."""
    for each in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if each.name.isdigit() and str(tmp_path).encode() in (each / "cmdline").read_bytes():
                os.kill(int(each.name), signal.SIGKILL)


def test_killed_while_it_writes_a_file_in_parts_nothing_half_is_visible(tmp_path):
    new_site(tmp_path / "site")
    program = textwrap.dedent(
        """
        import os, sys
        from gateway.posix.fsspec.filesystem import EntrepotFileSystem

        fs = EntrepotFileSystem(site=sys.argv[1])
        fs.mkdir("bay")
        fs.pipe_file("bay/before", b"acknowledged")
        with fs.open("bay/x", "wb") as opened:
            opened.write(bytes(30 << 20))
            os.kill(os.getpid(), 9)
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "site")], env=command_environment(), timeout=600
    )
    assert done.returncode == -signal.SIGKILL
    fs = EntrepotFileSystem(site=tmp_path / "site", skip_instance_cache=True)
    assert fs.find("bay") == ["bay/before"]
    assert fs.cat_file("bay/before") == b"acknowledged"
    assert uploads_of(tmp_path / "site", "bay") == 1
    fs.close()
    assert run_entrepot("fsck", str(tmp_path / "site"), "--read").returncode == 0


def test_nobody_loads_fsspec_with_a_gateway():
    modules = "gateway.site.processes.supervisor, gateway.cli.worker, gateway.site.processes.committer"
    program = f"import sys, {modules}; print('fsspec' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], env=command_environment(), capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr


def test_a_process_that_was_held_up_for_longer_than_its_lease_goes_on(tmp_path):
    new_site(tmp_path / "site")
    config = tmp_path / "site" / "entrepot.toml"
    config.write_text(re.sub(r"(?m)^lease_seconds = .*$", "lease_seconds = 1.0", config.read_text()))
    assert load(tmp_path / "site").journal.lease_seconds == 1.0
    fs = EntrepotFileSystem(site=tmp_path / "site", skip_instance_cache=True)
    fs.mkdir("bay")
    with fs.open("bay/x", "wb") as opened:
        opened.write(bytes(9 << 20))
        fs.loop.call_soon_threadsafe(time.sleep, 5)  # as an extension does that keeps the interpreter to itself
        opened.write(bytes(9 << 20))
    fs.loop.call_soon_threadsafe(time.sleep, 5)
    fs.pipe_file("bay/y", b"goes on")
    assert fs.info("bay/x")["size"] == 18 << 20
    assert fs.cat_file("bay/y") == b"goes on"
    fs.close()


@pytest.mark.parametrize("way", [IN_PROCESS], indirect=True)
def test_a_session_of_a_forked_worker_ends_with_it(fs, bucket, inputs, folder):
    before = sessions_of(folder)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        pool.map(DataSet(fs, bucket), range(2))
        during = sessions_of(folder)
        pool.close()
        pool.join()
    assert during - before
    assert not (sessions_of(folder) & during) - before, "a worker left its session to its lease"
