"""A real site is killed at every failpoint, once. What was acknowledged is whole, what was under way is wholly there or
not at all, the site is sound, and the keeper leaves nothing behind that nobody names."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from gateway.blocks.fsck.findings import Severity
from gateway.blocks.types import block_path
from gateway.config import load
from gateway.errors import NoSuchBucket
from gateway.failpoints import FROM_VARIABLE, POINTS, VARIABLE
from gateway.journal.paths import JournalPaths
from gateway.site.admin.users import list_users
from gateway.site.paths import journal_folder
from tests.endpoint import ACCESS_KEY, SECRET_KEY, Endpoint, run_entrepot, started
from tests.flows.dying import kill_all, make_site, once, quick
from tests.flows.reopened import ABSENT, digest, reopened
from tests.new_sites import copy_site
from tests.site.running import change_config, client, processes, until

BUCKET = "bucket"
LEAVING = "leaving"
MIB = 1 << 20
LARGE = 9 * MIB


def value_of(name: str, size: int) -> bytes:
    return random.Random(name).randbytes(size)


OBJECTS = {"kept": 5_000, "kept-large": LARGE, "target": 20_000} | {f"many-{n:02}": 3_000 for n in range(40)}
SURVIVORS = {"many-00", "many-13", "many-26", "many-39"}


class Template(NamedTuple):
    """A stopped site with OBJECTS and an upload of two parts."""

    folder: Path
    upload: str
    """Into BUCKET; another goes into LEAVING, where nothing else is."""
    etags: list[str]
    environment: dict[str, str]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    base = tmp_path_factory.mktemp("failpoints")
    environment = quick(base / "quick")
    make_site(base / "site", workers=1)
    with started(base / "site", environment=environment) as (endpoint, _):
        s3 = client(endpoint)
        s3.create_bucket(Bucket=BUCKET)

        def put(name: str) -> None:
            s3.put_object(Bucket=BUCKET, Key=name, Body=value_of(name, OBJECTS[name]))

        with ThreadPoolExecutor(16) as pool:
            list(pool.map(put, OBJECTS))
            for _ in range(50):  # until something is left of a pack of which the rest is deleted
                if packs_to_compact(base / "site"):
                    break
                list(pool.map(put, [name for name in OBJECTS if name.startswith("many-")]))
        assert packs_to_compact(base / "site")
        upload = s3.create_multipart_upload(Bucket=BUCKET, Key="whole")["UploadId"]
        etags = [
            s3.upload_part(
                Bucket=BUCKET, Key="whole", UploadId=upload, PartNumber=n, Body=value_of(f"part {n}", 5 * MIB)
            )["ETag"]
            for n in (1, 2)
        ]
        s3.create_bucket(Bucket=LEAVING)
        left = s3.create_multipart_upload(Bucket=LEAVING, Key="left")["UploadId"]
        s3.upload_part(Bucket=LEAVING, Key="left", UploadId=left, PartNumber=1, Body=value_of("left", 4_000))
        # A journal that is put back must not name blocks that its successor has deleted since.
        until(lambda: not garbage(base / "site"), "the keeper to delete what was overwritten")
    return Template(base / "site", upload, etags, environment)


def packs_to_compact(site: Path) -> int:
    """How many packs are compacted after `_delete_many`: some of their bodies stay, and more than a fifth of them
    goes."""
    doomed = [name.encode() for name in OBJECTS if name.startswith("many-") and name not in SURVIVORS]
    return counted_in_journal(
        site,
        "SELECT count(*) FROM (SELECT b.id FROM entry e JOIN file f ON f.id = e.node "
        "JOIN member m ON m.run = f.content JOIN block b ON b.id = m.block "
        f"WHERE e.name IN ({','.join('?' * len(doomed))}) GROUP BY b.id "
        "HAVING count(*) < b.members AND sum(f.size) * 5 > b.plain)",
        *doomed,
    )


def garbage(site: Path) -> int:
    """How much waits to be released or deleted."""
    return counted_in_journal(site, "SELECT (SELECT count(*) FROM freed) + (SELECT count(*) FROM block WHERE died > 0)")


def counted_in_journal(site: Path, statement: str, *values: bytes) -> int:
    database = JournalPaths(journal_folder(site, load(site))).database
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as base:
        return int(base.execute(statement, values).fetchone()[0])


WHOLE = digest(value_of("part 1", 5 * MIB) + value_of("part 2", 5 * MIB))
Possible = dict[str, set[str]]


class Act(NamedTuple):
    """Something that is under way when the site dies: how it is done, and what it makes of which keys."""

    do: Callable[[Any, Template], Any]
    makes: dict[str, str] = {}  # noqa: RUF012 (never changed)


def _put(name: str, size: int) -> Act:
    value = value_of("new " + name, size)
    return Act(lambda s3, _: s3.put_object(Bucket=BUCKET, Key=name, Body=value), {name: digest(value)})


def _part(s3: Any, template: Template) -> None:
    s3.upload_part(Bucket=BUCKET, Key="whole", UploadId=template.upload, PartNumber=3, Body=b"a third part" * 1_000)


def _complete(s3: Any, template: Template) -> None:
    parts = [{"PartNumber": number, "ETag": etag} for number, etag in enumerate(template.etags, 1)]
    s3.complete_multipart_upload(
        Bucket=BUCKET, Key="whole", UploadId=template.upload, MultipartUpload={"Parts": parts}
    )  # fmt: skip


def _copy(s3: Any, _: Template) -> None:
    s3.copy_object(Bucket=BUCKET, Key="copied", CopySource={"Bucket": BUCKET, "Key": "kept-large"})


def _delete_many(s3: Any, _: Template) -> None:
    keys = [{"Key": name} for name in OBJECTS if name.startswith("many-") and name not in SURVIVORS]
    s3.delete_objects(Bucket=BUCKET, Delete={"Objects": keys})


ACTS = {
    "nothing": Act(lambda _, __: None),
    "put": _put("new", 4_000),
    "put large": _put("new", LARGE),
    "overwrite": _put("target", 30_000),
    "part": Act(_part),
    "complete": Act(_complete, {"whole": WHOLE}),
    "copy": Act(_copy, {"copied": digest(value_of("kept-large", LARGE))}),
    "delete": Act(lambda s3, _: s3.delete_object(Bucket=BUCKET, Key="kept-large"), {"kept-large": ABSENT}),
    "delete many": Act(
        _delete_many, {name: ABSENT for name in OBJECTS if name.startswith("many-") and name not in SURVIVORS}
    ),
    "abort": Act(lambda s3, it: s3.abort_multipart_upload(Bucket=BUCKET, Key="whole", UploadId=it.upload)),
    "delete bucket": Act(lambda s3, _: s3.delete_bucket(Bucket=LEAVING)),
}
LOGGED = ("log-", "files-")
"""Points of the write-ahead logs."""
EVERY = ("put", "overwrite", "part", "complete", "copy", "delete")
MOMENTS: dict[str, tuple[str, ...]] = {
    "pack-sealed": ("put",),
    "pack-stored": ("put", "overwrite"),
    "block-sealed": ("put large",),
    "block-stored": ("put large",),
    "command-ready": EVERY,
    "command-answered": EVERY,
    "batch-prepared": ("overwrite", "complete"),
    "batch-written": ("overwrite", "complete", "delete bucket"),
    "batch-durable": ("overwrite", "complete", "delete", "delete bucket"),
    "batch-answered": ("overwrite", "complete"),
    "checkpointed": ("put",),
    "session-opened": ("put",),
    "session-ended": ("put",),
    "token-drawn": ("put",),
    "backend-stamped": ("put",),
    "release-ready": ("delete",),
    "release-done": ("delete",),
    "uploads-ready": ("delete bucket",),
    "parts-ready": ("abort", "delete bucket"),
    "dead-deleted": ("delete",),
    "dead-forgotten": ("delete",),
    "session-listed": ("nothing",),
    "compaction-stored": ("delete many",),
    "compaction-named": ("delete many",),
    "compaction-confirmed": ("delete many",),
    "compaction-moved": ("delete many",),
    "inline-values-flushed": ("put", "overwrite"),
    "log-written": ("put",),
    "log-durable": ("put",),
    "files-made": ("put",),
    "log-superseded": ("put",),
    "log-reset": ("put",),
    "file-written": ("put large",),
    "file-placed": ("put large",),
    "file-removed": ("delete",),
}
FROM_THE_START = {"session-opened": 2, "session-listed": 1}
"""These come while the site starts: the second session's opening, the sweep of the last run's sessions."""
QUICK = {("pack-stored", "put"), ("batch-durable", "complete"), ("log-durable", "put"), ("dead-deleted", "delete")}


def moments() -> Iterator[Any]:
    for point, acts in MOMENTS.items():
        for act in acts:
            marks = [] if (point, act) in QUICK else [pytest.mark.slow]
            yield pytest.param(point, act, marks=marks, id=f"{act} at {point}")


INIT = tuple(point for point in POINTS if point.startswith("init-"))
ROTATE = ("rotate-added", "rotate-half")
BACKUP = ("backup-pinned", "backup-copied", "backup-told")
TAKEOVER = ("takeover-pinned", "takeover-drawn")
COPIES = ("copies-begun", "copies-put", "copies-confirmed", "holders-recorded", "old-holders-dropped", "strays-deleted")


def test_every_point_of_the_table_is_tried() -> None:
    assert {*MOMENTS, *INIT, *ROTATE, *BACKUP, *TAKEOVER, *COPIES, "restore-made"} == set(POINTS)


@pytest.mark.parametrize(("point", "act"), list(moments()))
async def test_killed_between_two_steps_a_site_keeps_every_promise(
    tmp_path: Path, template: Template, point: str, act: str
) -> None:
    folder = tmp_path / "site"
    copy_site(template.folder, folder)
    possible = {name: {digest(value_of(name, size))} for name, size in OBJECTS.items()}
    answered = die(folder, template, point, ACTS[act])
    for name, made in ACTS[act].makes.items():
        possible[name] = {made} if answered else {made, *possible.get(name, {ABSENT})}
    async with reopened(folder) as site:
        site.check_journal()
        await site.check_bucket(BUCKET, possible)
        # what was killed may have recorded that a session ended, and not have swept what that one left
        await site.check_sound(Severity.WASTE)
        if act == "part":
            etags = {number: etag.strip('"') for number, etag in enumerate(template.etags, 1)}
            await site.check_parts(BUCKET, "whole", template.upload, etags)
        if act == "delete bucket" and answered:
            with pytest.raises(NoSuchBucket):
                await site.check_parts(LEAVING, "left", template.upload, {})
        await site.keep_house()
        await site.check_bucket(BUCKET, possible)
        await site.check_tidy()


def die(folder: Path, template: Template, point: str, act: Act) -> bool:
    """Serve the site, do *act*, and kill everything once a process has died at *point*. Answers whether the act was
    acknowledged."""
    armed = folder.with_name("armed")
    environment = template.environment | {VARIABLE: f"{point}=kill@{FROM_THE_START.get(point, 1)}"}
    if point not in FROM_THE_START:
        environment[FROM_VARIABLE] = str(armed)
    answered = False
    with ExitStack() as stack:
        endpoint, process = stack.enter_context(started(folder, environment=environment))
        stack.callback(kill_all, folder, process)
        s3 = once(endpoint)
        if point.startswith(LOGGED):
            until_logs_are_there(s3, endpoint)
        armed.touch()
        if point == "token-drawn":
            os.kill(processes(endpoint)["committer"]["pid"], signal.SIGKILL)
        try:
            act.do(s3, template)
            answered = True
        except (BotoCoreError, ClientError):
            pass
        if point == "session-ended":
            process.terminate()

        def reached() -> bool:
            if f"failpoint {point}: kill" in endpoint.log.read_text():
                return True
            if point.startswith(LOGGED):
                # The logs' files are there a moment before the worker uses them: what it stored in the plain way
                # meanwhile is put once more.
                with suppress(BotoCoreError, ClientError):
                    act.do(s3, template)
            return False

        until(reached, f"{point} to be reached")
    return answered


def until_logs_are_there(s3: Any, endpoint: Endpoint) -> None:
    """A worker makes its write-ahead logs while it stores its first values the plain way."""
    s3.put_object(Bucket=BUCKET, Key="kept", Body=value_of("kept", OBJECTS["kept"]))
    control = endpoint.dir / "blocks" / ".entrepot"
    until(lambda: list(control.glob("desk-*/1.log")), "the write-ahead logs")


# ---- commands -------------------------------------------------------------------------------------------------------


def killed(point: str, *arguments: str) -> None:
    """Run a command that dies at *point*."""
    done = run_entrepot(*arguments, environment={VARIABLE: f"{point}=kill"}, check=False)
    assert done.returncode == -9, done.stderr
    assert f"failpoint {point}: kill" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("point", INIT)
async def test_init_that_was_killed_at_any_step_is_run_again(tmp_path: Path, point: str) -> None:
    folder = tmp_path / "site"
    killed(point, "init", str(folder))
    refused = run_entrepot("fsck", str(folder), check=False)
    assert refused.returncode == 1
    assert "`entrepot init` was interrupted; run it again" in refused.stderr or "cannot be read" in refused.stderr
    run_entrepot("init", str(folder))
    kill_all(folder)
    async with reopened(folder) as site:
        await check_root(site.site)
        await site.keep_house()
        await site.check_tidy()


async def check_root(site: Any) -> None:
    (root,) = list_users(site)
    assert root.access_keys == (ACCESS_KEY,)
    found = site.credentials.find(ACCESS_KEY)
    assert found is not None
    assert found.secret == SECRET_KEY == (site.folder / "root.secret").read_text().strip()


@pytest.mark.slow
@pytest.mark.parametrize("point", ROTATE)
async def test_a_rotation_that_was_killed_is_finished_by_the_next_one(
    tmp_path: Path, template: Template, point: str
) -> None:
    folder = tmp_path / "site"
    copy_site(template.folder, folder)
    killed(point, "keys", "rotate", "--site", str(folder))
    kill_all(folder)
    possible = {name: {digest(value_of(name, size))} for name, size in OBJECTS.items()}
    async with reopened(folder) as site:
        await site.check_bucket(BUCKET, possible)
        await check_root(site.site)
    run_entrepot("keys", "rotate", "--site", str(folder))
    kill_all(folder)
    async with reopened(folder) as site:
        assert len(site.site.keyring.masters) == 2
        masters = site.site.store.query("SELECT master FROM ring_key UNION SELECT master FROM access_key")
        assert masters == [(site.site.keyring.masters.current.id,)]
        await check_root(site.site)
        await site.check_bucket(BUCKET, possible)
        await site.check_sound()


@pytest.mark.slow
@pytest.mark.parametrize("point", BACKUP)
async def test_a_backup_that_was_killed_is_none_and_the_next_one_is_whole(
    tmp_path: Path, template: Template, point: str
) -> None:
    folder, restored = tmp_path / "site", tmp_path / "restored"
    copy_site(template.folder, folder)
    killed(point, "backup", str(folder), str(tmp_path / "half"))
    refused = run_entrepot(
        "restore",
        "--take-over",
        "--yes",
        str(tmp_path / "half"),
        str(restored),
        "--master-key",
        str(folder / "master.key"),
        check=False,
    )
    assert refused.returncode == 1
    assert "is not a complete backup" in refused.stderr
    assert not restored.exists()
    run_entrepot("backup", str(folder), str(tmp_path / "whole"))
    run_entrepot(
        "restore",
        "--take-over",
        "--yes",
        str(tmp_path / "whole"),
        str(restored),
        "--master-key",
        str(folder / "master.key"),
    )
    kill_all(folder)
    await check_restored(restored)


@pytest.mark.slow
async def test_a_restore_that_was_killed_is_run_again(tmp_path: Path, template: Template) -> None:
    folder, restored = tmp_path / "site", tmp_path / "restored"
    copy_site(template.folder, folder)
    run_entrepot("backup", str(folder), str(tmp_path / "backup"))
    kill_all(folder)
    command = (
        "restore",
        "--take-over",
        "--yes",
        str(tmp_path / "backup"),
        str(restored),
        "--master-key",
        str(folder / "master.key"),
    )
    killed("restore-made", *command)
    assert "was interrupted; run it again" in run_entrepot("fsck", str(restored), check=False).stderr
    run_entrepot(*command)
    await check_restored(restored)


@pytest.mark.slow
@pytest.mark.parametrize("point", TAKEOVER)
async def test_a_takeover_that_was_killed_is_run_again(tmp_path: Path, template: Template, point: str) -> None:
    folder = tmp_path / "site"
    copy_site(template.folder, folder)
    shutil.copytree(folder / "journal", tmp_path / "older")
    run_entrepot("gc", str(folder))
    kill_all(folder)
    shutil.rmtree(folder / "journal")
    shutil.copytree(tmp_path / "older", folder / "journal")
    assert "another copy of this site's folder" in run_entrepot("fsck", str(folder), check=False).stderr
    killed(point, "takeover", str(folder), "--yes")
    run_entrepot("takeover", str(folder), "--yes")
    kill_all(folder)
    await check_restored(folder)


async def check_restored(folder: Path) -> None:
    possible = {name: {digest(value_of(name, size))} for name, size in OBJECTS.items()}
    async with reopened(folder) as site:
        site.check_journal()
        await site.check_bucket(BUCKET, possible)
        await site.check_sound()


# ---- moving to another place ----------------------------------------------------------------------------------------

SECOND = """
[backends.second]
type = "local"
cluster = "home"
path = "second"
"""


@pytest.mark.parametrize("nth", [1, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "point", [COPIES[0], COPIES[1], *(pytest.param(each, marks=pytest.mark.slow) for each in COPIES[2:])]
)
async def test_killed_while_it_moves_to_another_place_a_site_keeps_every_promise(
    tmp_path: Path, template: Template, point: str, nth: int
) -> None:
    folder = tmp_path / "site"
    copy_site(template.folder, folder)
    armed = folder.with_name("armed")
    environment = template.environment | {VARIABLE: f"{point}=kill@{nth}", FROM_VARIABLE: str(armed)}
    with ExitStack() as stack:
        endpoint, process = stack.enter_context(started(folder, environment=environment))
        stack.callback(kill_all, folder, process)
        armed.touch()
        config = folder / "entrepot.toml"
        config.write_text(config.read_text() + SECOND)
        change_config(folder, 'ack = ["disk"]', 'ack = ["second"]')
        change_config(folder, 'keep = ["disk"]', 'keep = ["second"]')
        run_entrepot("reload", str(folder), check=False)
        until(lambda: f"failpoint {point}: kill" in endpoint.log.read_text(), f"{point} to be reached")
    possible = {name: {digest(value_of(name, size))} for name, size in OBJECTS.items()}
    async with reopened(folder) as site:
        site.check_journal()
        await site.check_bucket(BUCKET, possible)
        await site.check_sound(Severity.WASTE)
        await site.keep_house()
        await site.move_copies()
        await site.check_bucket(BUCKET, possible)
        await site.check_sound()
        query = site.site.store.query
        named = {block_path(row[0]) for row in query("SELECT id FROM block")}
        there = {
            backend.name: {line.key async for line in backend.list()} for backend in site.site.storage.backends.values()
        }
        assert there == {"disk": set(), "second": named}
        assert query("SELECT count(*) FROM work") == [(0,)]
