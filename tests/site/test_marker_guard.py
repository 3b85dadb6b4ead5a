"""A backend that loses its marker while it is in use takes nothing until it bears it again, and everybody is told."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from backends import errors
from backends.base import Backend, Marker, crc32c_of
from backends.local.backend import Local
from backends.testing.memory import Memory
from gateway.errors import Misconfigured, Unavailable
from gateway.site.site import Site
from gateway.site.storage.agreement import RestoredElsewhere
from gateway.site.storage.marker_guard import MarkerGuard
from gateway.timing import Timing, parse_timing
from tests.backends.mounts import mounted
from tests.endpoint import run_entrepot, started
from tests.site.running import client, counted, entrepot, lines, until, watch
from tests.site.test_write_targets import folder, get, put  # noqa: F401 (a fixture among them)
from tests.waiting import until_true

SITE = "ab" * 16
MARKER = Marker(SITE, 7, 1)


class Rows:
    def query(self, statement: str, values: object = ()) -> list[object]:
        return [(SITE, 1)]

    def catalog_version(self) -> int:
        return 1


async def guarded(inner: Backend) -> MarkerGuard:
    await inner.claim(MARKER)
    await inner.put("held", [b"held"], crc32c_of([b"held"]))
    return MarkerGuard(inner, 7, seconds=0.01, timing=Timing())


@pytest.fixture
async def at(tmp_path: Path) -> AsyncIterator[Path]:
    yield tmp_path / "disk"


@pytest.fixture
async def local(at: Path) -> AsyncIterator[Local]:
    opened = await Local.open(str(at), name="disk")
    yield opened
    await opened.close()


async def refuses(backend: Backend, why: str) -> None:
    """Everything that would change it, and every word that something is gone; not what is there."""
    with pytest.raises(errors.Unavailable, match=why):
        await backend.put("new", [b"new"], crc32c_of([b"new"]))
    with pytest.raises(errors.Unavailable, match=why):
        await backend.delete("held")
    for absent in (backend.get("absent"), backend.stat("absent")):
        with pytest.raises(errors.Unavailable, match=why):
            await absent
    with pytest.raises(errors.Unavailable, match=why):
        _ = [line async for line in backend.list()]


@pytest.mark.parametrize("lost", ["removed", "foreign", "spoilt"])
async def test_a_place_without_our_marker_takes_nothing_until_it_bears_it_again(
    at: Path, local: Local, lost: str, caplog: pytest.LogCaptureFixture
) -> None:
    backend, path = await guarded(local), at / ".entrepot" / "marker"
    ours = path.read_text()
    path.unlink()
    if lost != "removed":
        path.write_text("no marker" if lost == "spoilt" else ours.replace(SITE, "cd" * 16))
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            await backend.check(Rows())
    assert [record.levelname for record in caplog.records] == ["ERROR"], "once, and not each time"
    await refuses(backend, "it takes nothing: ")
    assert bytes(await backend.get("held")) == b"held"
    caplog.clear()
    path.write_text(ours)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            await backend.check(Rows())
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    await backend.put("new", [b"new"], crc32c_of([b"new"]))
    with pytest.raises(errors.NotFound):
        await backend.get("absent")


async def test_a_folder_that_another_one_stands_in_for_takes_nothing(at: Path, local: Local) -> None:
    """As where its disk was unmounted: the empty mount point shows."""
    backend = await guarded(local)
    at.rename(at.with_name("elsewhere"))
    await backend.check(Rows())
    await refuses(backend, "it was removed since it was opened")
    at.mkdir()
    await backend.check(Rows())
    await refuses(backend, "another folder replaced it since it was opened")
    assert os.listdir(at) == []


async def test_a_disk_that_is_mounted_over_it_takes_nothing_until_it_is_gone(at: Path, local: Local) -> None:
    backend = await guarded(local)
    with mounted(at, "-t", "tmpfs", "-o", "size=4m", "tmpfs"):
        await backend.check(Rows())
        await refuses(backend, "another folder replaced it")
        assert os.listdir(at) == []
    await backend.check(Rows())
    await backend.put("new", [b"new"], crc32c_of([b"new"]))


async def test_a_disk_that_comes_back_as_another_file_system_is_opened_anew(at: Path, local: Local) -> None:
    async def reopen() -> Backend:
        again = await Local.open(str(at), name="disk")
        if await again.marker() != MARKER:
            await again.close()
            raise errors.Misconfigured("not this one")
        return again

    backend = await guarded(local)
    backend._reopen = reopen
    at.rename(at.with_name("elsewhere"))
    at.mkdir()
    await backend.check(Rows())
    await refuses(backend, "another folder replaced it")
    shutil.copytree(at.with_name("elsewhere"), at, dirs_exist_ok=True)
    await backend.check(Rows())
    assert backend.why == ""
    assert bytes(await backend.get("held")) == b"held"
    assert backend.get_now("held") in (None, b"held")
    await backend.put("new", [b"new"], crc32c_of([b"new"]))
    assert (at / "new").exists()
    assert not (at.with_name("elsewhere") / "new").exists()
    await backend.close()


async def test_a_marker_that_cannot_be_seen_at_the_moment_says_nothing() -> None:
    class Silent(Memory):
        async def marker(self) -> Marker | None:
            raise errors.Unavailable("no answer")

    backend = MarkerGuard(Silent(), 7, seconds=1, timing=Timing())
    await backend.check(Rows())
    await backend.put("new", [b"new"], crc32c_of([b"new"]))


async def test_a_place_of_a_later_incarnation_takes_nothing_until_it_is_ours_again() -> None:
    held = Memory()
    backend = await guarded(held)
    held._marker = MARKER._replace(incarnation=2, backend=9)
    await backend.check(Rows())
    assert isinstance(backend.elsewhere, RestoredElsewhere)
    await refuses(backend, "incarnation 2")
    held._marker = MARKER
    await backend.check(Rows())
    assert backend.elsewhere is None
    await backend.put("new", [b"new"], crc32c_of([b"new"]))


async def test_a_driver_that_fails_over_what_it_sees_ends_no_watch(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Memory):
        async def marker(self) -> Marker | None:
            raise OverflowError("cannot convert float infinity to integer")

    backend = MarkerGuard(Broken(), 7, seconds=0.001, timing=Timing())
    watching = asyncio.create_task(backend.watch(Rows()))
    await until_true(lambda: len(caplog.records) > 2)
    assert not watching.done()
    watching.cancel()
    await backend.put("new", [b"new"], crc32c_of([b"new"]))


async def test_an_open_site_goes_on_by_itself_once_its_disk_is_back(
    folder: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    async with await Site.open(folder, timing=parse_timing("markers.local_seconds=0.02")) as site:
        await put(site, "large", b"x" * 1024)
        (tmp_path / "vault").rename(tmp_path / "elsewhere")
        (tmp_path / "vault").mkdir()
        # that nothing stands there, between these two, may have been seen first
        await until_true(
            lambda: "another folder replaced it" in getattr(site.storage.troubles().get("vault"), "why", "")
        )
        with pytest.raises(Unavailable, match="another folder replaced it"):
            await put(site, "safe/small", b"x")
        await put(site, "small", b"x")
        assert await get(site, "large") == b"x" * 1024
        (tmp_path / "vault").rmdir()
        (tmp_path / "elsewhere").rename(tmp_path / "vault")
        await until_true(lambda: not site.storage.troubles())
        await put(site, "safe/small", b"x")


def test_a_served_site_says_where_it_can_that_a_marker_is_gone(tmp_path: Path) -> None:
    with started(tmp_path / "site", ["--workers", "1"]) as (endpoint, _):
        s3 = client(endpoint, retries=0)
        s3.create_bucket(Bucket="bucket")
        s3.put_object(Bucket="bucket", Key="a", Body=b"a")
        marker = endpoint.dir / "blocks" / ".entrepot" / "marker"
        ours = marker.read_bytes()
        marker.unlink()
        until(lambda: counted(endpoint, "entrepot_backend_refusing", backend="disk") == 2, "both to say so")
        with pytest.raises(ClientError) as failed:
            s3.put_object(Bucket="bucket", Key="b", Body=b"b")
        assert failed.value.response["ResponseMetadata"]["HTTPStatusCode"] == 503
        assert s3.get_object(Bucket="bucket", Key="a")["Body"].read() == b"a"
        until(lambda: "disk" in watch(endpoint, "/healthz")[1]["processes"]["worker 0"].get("backends", {}), "health")
        assert watch(endpoint, "/readyz")[0] == 503

        def said() -> int:
            told = "nothing is written on backend 'disk' any more"
            return len([each for each in lines(endpoint) if told in str(each)])

        until(lambda: said() >= 2, "their lines")
        assert said() == 2, "once in each process"
        told = run_entrepot("status", str(endpoint.dir), check=False)
        shown = told.stdout
        assert told.returncode == 3
        assert re.search(
            r"^backend disk: UNAVAILABLE since \S+Z: it does not have this site's marker: [^;]* \(reported by keeper, "
            r"worker 0\); in use, 1 block\(s\)",
            shown,
            re.MULTILINE,
        )
        (row,) = entrepot(endpoint, "backend", "list")
        assert "does not have this site's marker" in row["health"]
        marker.write_bytes(ours)
        until(lambda: counted(endpoint, "entrepot_backend_refusing", backend="disk") == 0, "both to be well")
        s3.put_object(Bucket="bucket", Key="b", Body=b"b")
        assert "UNAVAILABLE" not in run_entrepot("status", str(endpoint.dir)).stdout


async def test_two_places_that_were_swapped_are_told_by_name(folder: Path, tmp_path: Path) -> None:  # noqa: F811
    async with await Site.open(folder) as site:
        await put(site, "safe/key", b"x")
    config = folder / "entrepot.toml"
    disk, vault = 'path = "blocks"', f'path = "{tmp_path / "vault"}"'
    first, second, third = (part for each in config.read_text().split(disk) for part in each.split(vault))
    config.write_text(first + vault + second + disk + third)
    with pytest.raises(Misconfigured, match=r"it is the place of backend 'vault' of this site: was it renamed, or"):
        await Site.open(folder)
