"""The S3 driver in a bucket that it shares with others, and how it finds out what its server can confirm."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from backends import errors
from backends.base import Listed, Marker, Stat
from backends.s3.backend import S3
from backends.s3.object_requests import crc64nvme_of, md5_of, sha256_of
from tests.backends.conftest import OpenS3
from tests.backends.contract import OTHER_SITE, SITE, key, listed, put
from tests.servers.between import Forward, Heard, answer, between, refusal
from tests.servers.minio import is_there
from tests.servers.running import S3Server

FOREIGN = ["a/b", "other/0000000000000005/1", "p.txt", "p-/1", "pa/1", "zz/deep/er", "Upper/Case"]
FOREIGN_ABOVE = ["a", "p"]
"""Objects where others are below: MinIO stores both, and lists those below by their own folders alone."""
ODD = ["p/d/", "p/Upper", "p/ü", "p/with space", "p/.hidden", "p/.entrepot-not", "p/q%20r"]
ODD_EMPTY = ["p//a", "p/b//c"]
"""Names that MinIO refuses."""


def names_for(request: pytest.FixtureRequest, names: list[str], others: list[str]) -> list[str]:
    """*names*, and the *others* where the server in turn takes them as S3 does."""
    return names if request.node.callspec.params["server"] == "minio" else [*names, *others]


def control(backend: S3) -> Any:
    """The client beneath, to do what somebody else does to the bucket."""
    return backend._control._client


async def everything(backend: S3) -> dict[str, str]:
    """Each key of the whole bucket with its ETag."""
    answer = await control(backend).list_objects_v2(Bucket=backend._settings.bucket)
    return {line["Key"]: line["ETag"] for line in answer.get("Contents", ())}


async def test_what_others_have_in_the_bucket_is_never_seen_or_touched(
    request: pytest.FixtureRequest, server: S3Server, open_s3: OpenS3
) -> None:
    backend = await open_s3(server, prefix="/p/")
    for name in names_for(request, FOREIGN, FOREIGN_ABOVE):
        await control(backend).put_object(Bucket=backend._settings.bucket, Key=name, Body=name.encode())
    before = await everything(backend)
    for number in range(20):
        await put(backend, key(number), b"x")
    await backend.claim(Marker(SITE, 1, 1))
    assert [line.key for line in await listed(backend.list())] == [key(number) for number in range(20)]
    for prefix in ("a", "p", "0", "zz", "other"):
        assert all(line.key.startswith(f"{5:016x}/") for line in await listed(backend.list(prefix)))
    for name in ("a", "a/b", "p", "p.txt"):
        with pytest.raises(errors.NotFound):
            await backend.get(name)
        await backend.delete(name)
    async for line in backend.list():
        await backend.delete(line.key)
    after = await everything(backend)
    assert {name: etag for name, etag in after.items() if not name.startswith("p/")} == before
    assert [name for name in after if name.startswith("p/")] == ["p/.entrepot/marker"]


async def test_two_prefixes_of_one_bucket_do_not_see_each_other(server: S3Server, open_s3: OpenS3) -> None:
    one = await open_s3(server, prefix="x")
    other = await open_s3(server, bucket=one._settings.bucket, prefix="x-2")
    below = await open_s3(server, bucket=one._settings.bucket, prefix="x-2/y")
    for number, backend in enumerate((one, other, below)):
        await put(backend, key(number), b"x" * number)
        await backend.claim(Marker(SITE if number else OTHER_SITE, number, 1))
    assert await listed(one.list()) == [Listed(key(0), 0)]
    assert await listed(below.list()) == [Listed(key(2), 2)]
    assert Listed(key(1), 1) in await listed(other.list())
    assert (await one.marker(), await other.marker()) == (Marker(OTHER_SITE, 0, 1), Marker(SITE, 1, 1))
    with pytest.raises(errors.NotFound):
        await one.get(key(1))
    await one.delete(key(1))
    assert bytes(await other.get(key(1))) == b"x"


@pytest.mark.parametrize("more", [[], ODD_EMPTY], ids=["spelt", "unspelt"])
async def test_names_that_nobody_of_ours_wrote_do_not_stop_a_listing(
    request: pytest.FixtureRequest, server: S3Server, open_s3: OpenS3, more: list[str]
) -> None:
    backend = await open_s3(server, prefix="p")
    odd = names_for(request, ODD, more)
    for name in odd:
        await control(backend).put_object(
            Bucket=backend._settings.bucket, Key=name, Body=b"" if name[-1] == "/" else b"odd"
        )
    await put(backend, "empty", b"")
    wanted = [key(number, session=session) for session in (1, 2) for number in range(70)]
    await asyncio.gather(*(put(backend, at, b"x") for at in [*wanted, "b/c", "z"]))
    assert [line.key for line in await listed(backend.list())] == [*wanted, "b/c", "empty", "z"]
    assert [line.key for line in await listed(backend.list(after=wanted[99]))] == [*wanted[100:], "b/c", "empty", "z"]
    assert [line.key for line in await listed(backend.list(prefix="b"))] == ["b/c"]
    assert [line.key for line in await listed(backend.list(prefix=f"{2:016x}/"))] == wanted[70:]
    assert set(odd) <= set(await everything(backend))


CONFIRMATIONS = [
    ("moto", "etag"),
    ("radosgw", "etag"),
    ("entrepot", "checksum"),
    *([("minio", "checksum")] if is_there() else []),
]


@pytest.mark.parametrize(("which", "confirmation"), CONFIRMATIONS)
async def test_how_a_server_confirms_is_found_out_by_telling_it_a_lie(
    request: pytest.FixtureRequest, open_s3: OpenS3, which: str, confirmation: str
) -> None:
    backend = await open_s3(request.getfixturevalue(f"{which}_server"), prefix="p")
    await asyncio.gather(*(put(backend, key(number), b"x") for number in range(5)))
    assert backend._confirmation == confirmation
    assert sorted(await everything(backend)) == [f"p/{key(number)}" for number in range(5)]


async def test_a_server_whose_etags_say_nothing_is_read_back(radosgw_server: S3Server, open_s3: OpenS3) -> None:
    """As with SSE-KMS: every ETag is another thing than the MD5."""

    async def veiled(request: Heard, forward: Forward) -> bytes | None:
        reply = await forward(request)
        if request.method != "PUT":
            return reply
        real = f'"{hashlib.md5(request.body).hexdigest()}"'.encode()
        return reply.replace(real, f'"{hashlib.md5(real).hexdigest()}"'.encode())

    async with between(radosgw_server) as way:
        way.rule = veiled
        backend = await open_s3(way.server)
        await put(backend, key(1), b"veiled")
        assert backend._confirmation == "read"
        assert bytes(await backend.get(key(1))) == b"veiled"


async def test_a_server_that_does_not_want_to_hear_of_checksums_is_asked_without(
    radosgw_server: S3Server, open_s3: OpenS3
) -> None:
    async def strict(request: Heard, forward: Forward) -> bytes | None:
        if "x-amz-checksum-crc64nvme" in request.headers:
            return refusal("400 Bad Request", "InvalidArgument", "Unknown header.")
        return await forward(request)

    async with between(radosgw_server) as way:
        way.rule = strict
        backend = await open_s3(way.server)
        await put(backend, key(1), b"x")
        assert backend._confirmation == "etag"


async def test_a_bucket_that_keeps_versions_is_warned_of(
    moto_server: S3Server, open_s3: OpenS3, caplog: pytest.LogCaptureFixture
) -> None:
    backend = await open_s3(moto_server)
    assert not caplog.records
    await control(backend).put_bucket_versioning(
        Bucket=backend._settings.bucket, VersioningConfiguration={"Status": "Enabled"}
    )
    with caplog.at_level(logging.WARNING, "backends.s3"):
        await open_s3(moto_server, bucket=backend._settings.bucket)
    assert "keeps versions" in caplog.text


async def test_no_more_requests_than_connections_run_at_once(radosgw_server: S3Server, open_s3: OpenS3) -> None:
    inside, most = 0, 0

    async def counting(request: Heard, forward: Forward) -> bytes | None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0.01)
        inside -= 1
        return await forward(request)

    async with between(radosgw_server) as way:
        backend = await open_s3(way.server, connections=3)
        way.rule = counting
        await asyncio.gather(*(put(backend, key(number), b"x") for number in range(20)))
        await asyncio.gather(*(backend.get(key(number)) for number in range(20)))
    assert most == 3


def connections_to(server: S3Server) -> int:
    """How many of this process's TCP connections end at *server* and are established."""
    port = f":{urlsplit(server.url).port:04X}"
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    established = {line[9] for line in lines if line[2].endswith(port) and line[3] == "01"}
    return sum(f"socket:[{inode}]" in own_files() for inode in established)


def own_files() -> set[str]:
    """What the file descriptors of this process refer to."""
    found = set()
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            found.add(os.readlink(f"/proc/self/fd/{descriptor}"))
    return found


async def test_closing_leaves_no_connection_open(radosgw_server: S3Server, open_s3: OpenS3) -> None:
    before = connections_to(radosgw_server)
    backend = await open_s3(radosgw_server)
    await asyncio.gather(*(put(backend, key(number), b"x") for number in range(10)))
    await backend.marker()
    assert connections_to(radosgw_server) >= before + 2
    await backend.close()
    for _ in range(500):
        if connections_to(radosgw_server) <= before:
            break
        await asyncio.sleep(0.02)
    else:
        pytest.fail("connections are still open")


async def test_a_put_that_is_cancelled_lets_go_of_its_buffers(radosgw_server: S3Server, open_s3: OpenS3) -> None:
    async def stuck(request: Heard, forward: Forward) -> bytes | None:
        await asyncio.sleep(60)
        return answer("200 OK")

    async with between(radosgw_server) as way:
        backend = await open_s3(way.server, connections=1)
        await put(backend, key(1), b"x")
        way.rule = stuck
        value = bytearray(os.urandom(1 << 20))
        putting = asyncio.create_task(put(backend, key(2), value))
        while len(way.heard) < 5 and not any(key(2) in request.target for request in way.heard):
            await asyncio.sleep(0.01)
        putting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await putting
        for _ in range(500):
            try:
                value.append(0)  # a buffer that somebody still holds cannot grow
                break
            except BufferError:
                await asyncio.sleep(0.01)
        else:
            pytest.fail("the buffers of a cancelled put are still held")
        way.rule = lambda request, forward: forward(request)
        assert bytes(await backend.get(key(1))) == b"x"


def test_digests_are_those_of_all_buffers_one_after_the_other() -> None:
    value = [b"ab", b"", memoryview(b"c")]
    assert md5_of(value) == hashlib.md5(b"abc").hexdigest()
    assert sha256_of(value) == hashlib.sha256(b"abc").hexdigest()
    assert crc64nvme_of(value) == crc64nvme_of([b"abc"])
    assert crc64nvme_of([b"123456789"]).hex() == "ae8b14860a799888", "CRC-64/NVME's check value"


async def test_a_site_without_clouds_loads_none_of_their_libraries() -> None:
    code = "import sys, backends.retry, backends.local.backend, gateway.site.site; print(sorted(sys.modules))"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    loaded = out.decode()
    assert process.returncode == 0
    assert not [name for name in ("'botocore'", "'aiobotocore'") if name in loaded]


async def test_what_stands_there_is_known_by_its_md5_without_reading_it(server: S3Server, open_s3: OpenS3) -> None:
    backend, value = await open_s3(server, prefix="p"), os.urandom(300_000)
    await put(backend, key(1), value)
    assert await backend.stat(key(1)) == Stat(len(value), hashlib.md5(value).hexdigest())
