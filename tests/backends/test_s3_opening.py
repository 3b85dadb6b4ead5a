"""Opening an S3 backend: what is in the way is told with what, where, and what to do."""

from __future__ import annotations

import asyncio
import os
import ssl
import subprocess
import sys
from typing import Any

import pytest

from backends import errors
from backends.s3.backend import S3
from backends.s3.settings import S3Settings
from tests.backends.conftest import OpenS3
from tests.backends.contract import key, put
from tests.endpoint import ROOT
from tests.ports import free_port
from tests.servers.between import Forward, Heard, between, refusal
from tests.servers.radosgw import DOMAIN, QUOTA_ACCESS_KEY, QUOTA_OBJECTS
from tests.servers.running import S3Server

BAD_SETTINGS = [
    ({"bucket": ""}, "bucket '' is no"),
    ({"bucket": "a/b"}, "bucket 'a/b' is no"),
    ({"prefix": "a/../b"}, "prefix 'a/../b/': '..' is no segment"),
    ({"prefix": "a//b"}, "'' is no segment"),
    ({"prefix": "a b"}, "'a b' is no segment"),
    ({"endpoint": "example.org"}, "no http:// or https://"),
    ({"endpoint": "ftp://example.org"}, "no http:// or https://"),
    ({"endpoint": "http://"}, "no http:// or https://"),
    ({"endpoint": "http://h:99999"}, "endpoint 'http://h:99999'"),
    ({"endpoint": "https://example.org/path"}, "more than scheme, host and port"),
    ({"endpoint": "https://me@example.org"}, "more than scheme, host and port"),
    ({"secret_key": None}, "belong together"),
    ({"access_key": None, "secret_key": None, "session_token": "t"}, "belongs to an access_key"),
    ({"profile": "p"}, "a profile or an access_key"),
    ({"connections": 0}, "connections is 0"),
    ({"timeout_s": -1.0}, "timeout_s is -1.0"),
    ({"style": "odd"}, "style 'odd' is none of"),
    ({"confirm": "maybe"}, "confirm 'maybe' is none of"),
    ({"ca_file": "/nowhere/ca.pem"}, "ca_file /nowhere/ca.pem: No such file"),
    ({"ca_file": os.devnull}, "is not a regular file"),
]


@pytest.mark.parametrize(("wrong", "told"), BAD_SETTINGS)
async def test_a_wrong_setting_is_told_before_anything_is_asked(wrong: dict[str, Any], told: str) -> None:
    given = {"bucket": "bucket", "endpoint": "http://127.0.0.1:1", "access_key": "a", "secret_key": "s", "name": "far"}
    with pytest.raises(errors.Misconfigured, match="far") as caught:
        await S3.open(**(given | wrong))
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("reached", "style", "bucket", "expected"),
    [
        ("https://s3.eu-west-1.amazonaws.com", "auto", "bkt", ("https://bkt.s3.eu-west-1.amazonaws.com", True)),
        ("https://s3.cn-north-1.amazonaws.com.cn", "auto", "bkt", ("https://bkt.s3.cn-north-1.amazonaws.com.cn", True)),
        ("https://s3.eu-west-1.amazonaws.com", "auto", "b.kt", ("https://s3.eu-west-1.amazonaws.com", False)),
        ("https://s3.eu-west-1.amazonaws.com", "path", "bkt", ("https://s3.eu-west-1.amazonaws.com", False)),
        ("http://minio:9000/", "auto", "bkt", ("http://minio:9000", False)),
        ("http://minio:9000", "virtual", "bkt", ("http://bkt.minio:9000", True)),
        ("http://notamazonaws.com", "auto", "bkt", ("http://notamazonaws.com", False)),
    ],
)
def test_the_style_says_where_the_buckets_name_stands(
    reached: str, style: Any, bucket: str, expected: tuple[str, bool]
) -> None:
    settings = S3Settings(
        "s3", bucket, "", None, None, None, None, None, None, style, False, None, 1, 1.0, "auto"
    )  # fmt: skip
    assert settings.address(reached) == expected


async def test_wrong_keys_are_denied_each_with_its_reason(radosgw_server: S3Server, open_s3: OpenS3) -> None:
    with pytest.raises(errors.Denied, match="access key is not known there; check access_key"):
        await open_s3(radosgw_server, access_key="NOBODY")
    with pytest.raises(errors.Denied, match="secret key does not belong") as caught:
        await open_s3(radosgw_server, secret_key="a-secret-that-nobody-may-see")
    assert radosgw_server.url in str(caught.value)
    assert "a-secret-that" not in str(caught.value)


async def test_no_credentials_at_all_is_a_mistake_in_the_configuration(
    radosgw_server: S3Server, open_s3: OpenS3
) -> None:
    with pytest.raises(errors.Misconfigured, match="no credentials"):
        await open_s3(radosgw_server, access_key=None, secret_key=None)
    with pytest.raises(errors.Misconfigured, match="nowhere"):
        await open_s3(radosgw_server, access_key=None, secret_key=None, profile="nowhere")


async def test_somebody_elses_bucket_is_denied(radosgw_server: S3Server, open_s3: OpenS3) -> None:
    theirs = await open_s3(radosgw_server)
    with pytest.raises(errors.Denied, match="allow s3:ListBucket"):
        await open_s3(
            radosgw_server, bucket=theirs._settings.bucket, access_key=QUOTA_ACCESS_KEY, create_bucket=False
        )  # fmt: skip


async def test_a_bucket_that_is_not_there_is_named_and_made_only_where_that_is_asked(
    server: S3Server, open_s3: OpenS3
) -> None:
    with pytest.raises(errors.Misconfigured, match="there is no such bucket; create it, or set create_bucket, which"):
        await open_s3(server, bucket="entrepot-nowhere", create_bucket=False)
    made = await open_s3(server)
    again = await open_s3(server, bucket=made._settings.bucket)
    await put(made, key(1), b"x")
    assert bytes(await again.get(key(1))) == b"x"


async def test_a_bucket_that_is_gone_does_not_mean_that_its_values_are(server: S3Server, open_s3: OpenS3) -> None:
    backend = await open_s3(server)
    await backend._control._client.delete_bucket(Bucket=backend._settings.bucket)
    calls = (backend.get(key(1)), backend.get(key(1), 1, 1), backend.stat(key(1)), put(backend, key(1), b"x"))
    for call in calls:
        with pytest.raises(errors.Misconfigured, match="no such bucket"):
            await call
    with pytest.raises(errors.Misconfigured, match="no such bucket"):
        await backend.delete(key(1))
    with pytest.raises(errors.Misconfigured, match="no such bucket"):
        await backend.marker()
    with pytest.raises(errors.Misconfigured, match="no such bucket"):
        _ = [line async for line in backend.list()]


async def test_a_wrong_region_is_told_with_the_right_one(entrepot_server: S3Server, open_s3: OpenS3) -> None:
    await open_s3(entrepot_server, bucket="entrepot-region")
    with pytest.raises(errors.Misconfigured, match="lies in the region us-east-1; set region = 'us-east-1'"):
        await open_s3(entrepot_server, bucket="entrepot-region", region="eu-west-9")


async def test_a_region_that_nobody_set_is_found(
    entrepot_server: S3Server, open_s3: OpenS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-9")
    backend = await open_s3(entrepot_server, bucket="entrepot-region")
    assert backend.region == "us-east-1"
    await put(backend, key(1), b"x")
    assert bytes(await backend.get(key(1))) == b"x"


async def test_a_redirect_to_another_region_is_understood(moto_server: S3Server, open_s3: OpenS3) -> None:
    """AWS answers 301 to a request in the wrong region, with the right one in a header."""

    async def elsewhere(request: Heard, forward: Forward) -> bytes | None:
        if "/eu-central-1/s3/" not in request.headers["authorization"]:
            return refusal("301 Moved Permanently", "PermanentRedirect", x_amz_bucket_region="eu-central-1")
        return await forward(request)

    await open_s3(moto_server, bucket="entrepot-there")
    async with between(moto_server) as way:
        way.rule = elsewhere
        found = await open_s3(way.server, bucket="entrepot-there")
        assert found.region == "eu-central-1"
        await put(found, key(1), b"x")
        with pytest.raises(errors.Misconfigured, match="region eu-central-1"):
            await open_s3(way.server, bucket="entrepot-there", region="us-east-1")
        found._control.region = "us-east-1"


async def test_a_bucket_is_made_in_its_region(moto_server: S3Server, open_s3: OpenS3) -> None:
    made = await open_s3(moto_server, region="eu-central-1")
    place = await made._control._client.get_bucket_location(Bucket=made._settings.bucket)
    assert place["LocationConstraint"] == "eu-central-1"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:1"),
        ("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1"),
        ("AWS_ENDPOINT", "http://127.0.0.1:1"),
        ("AWS_BUCKET", "other"),
        ("AWS_REGION", "nowhere-1"),
        ("AWS_ACCESS_KEY_ID", "NOBODY"),
        ("AWS_SESSION_TOKEN", "nobody's"),
        ("AWS_SKIP_SIGNATURE", "true"),
        ("AWS_S3_EXPRESS", "true"),
        ("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "true"),
        ("AWS_ALLOW_HTTP", "false"),
        ("AWS_CHECKSUM_ALGORITHM", "sha256"),
    ],
)
async def test_the_environment_does_not_lead_the_bytes_elsewhere(
    radosgw_server: S3Server, open_s3: OpenS3, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    backend = await open_s3(radosgw_server)
    await put(backend, key(1), b"x")
    assert bytes(await backend.get(key(1))) == b"x"


async def test_what_is_not_there_is_unavailable(radosgw_server: S3Server, open_s3: OpenS3) -> None:
    nobody = radosgw_server.at(f"http://127.0.0.1:{free_port()}")
    with pytest.raises(errors.Unavailable, match="nobody listens there"):
        await open_s3(nobody)
    with pytest.raises(errors.Unavailable, match="host's name is not known"):
        await open_s3(radosgw_server.at("http://nowhere.invalid:9000"))


async def test_a_server_that_goes_away_is_unavailable(radosgw_server: S3Server, open_s3: OpenS3) -> None:
    async with between(radosgw_server) as way:
        backend = await open_s3(way.server)
        await put(backend, key(1), b"x")
    for call in (backend.get(key(1)), put(backend, key(1), b"x"), backend.stat(key(1)), backend.delete(key(1))):
        with pytest.raises(errors.Unavailable, match="nobody listens there"):
            await call
    with pytest.raises(errors.Unavailable, match="nobody listens there"):
        await backend.marker()


async def test_a_certificate_of_ones_own_is_trusted_by_its_ca_file(
    radosgw_server: S3Server, open_s3: OpenS3, own_ca: tuple[ssl.SSLContext, str]
) -> None:
    context, ca_file = own_ca
    async with between(radosgw_server, tls=context) as way:
        with pytest.raises(errors.Misconfigured, match=r"certificate is not trusted; name .* in ca_file"):
            await open_s3(way.server)
        backend = await open_s3(way.server, ca_file=ca_file)
        await put(backend, key(1), b"over TLS" * 10_000)
        assert bytes(await backend.get(key(1))) == b"over TLS" * 10_000
        backend._objects._client._options["ssl"] = ssl.create_default_context()  # aiohttp does not share connections
        with pytest.raises(errors.Misconfigured, match="certificate is not trusted"):
            await put(backend, key(2), b"x")


async def test_over_tls_an_entrepot_needs_no_sha256(
    entrepot_server: S3Server, open_s3: OpenS3, own_ca: tuple[ssl.SSLContext, str]
) -> None:
    context, ca_file = own_ca
    async with between(entrepot_server, tls=context) as way:
        backend = await open_s3(way.server, ca_file=ca_file)
        await put(backend, key(1), b"x" * 100_000)
        assert way.heard[-1].headers["x-amz-content-sha256"] == "UNSIGNED-PAYLOAD"
        assert "x-amz-checksum-crc64nvme" in way.heard[-1].headers


async def test_https_where_http_is_spoken_is_told(radosgw_server: S3Server, open_s3: OpenS3) -> None:
    with pytest.raises(errors.Misconfigured, match="does not speak TLS"):
        await open_s3(radosgw_server.at(radosgw_server.url.replace("http:", "https:")))


async def test_clocks_that_differ_are_told(radosgw_server: S3Server, open_s3: OpenS3) -> None:
    async def late(request: Heard, forward: Forward) -> bytes | None:
        return refusal("403 Forbidden", "RequestTimeTooSkewed", "The difference … is too large.")

    async with between(radosgw_server) as way:
        backend = await open_s3(way.server)
        way.rule = late
        with pytest.raises(errors.Misconfigured, match="NTP"):
            await backend.get(key(1))
        with pytest.raises(errors.Misconfigured, match="NTP"):
            await open_s3(way.server)


async def test_a_quota_that_is_used_up_is_full_and_deleting_makes_room(
    radosgw_server: S3Server, open_s3: OpenS3
) -> None:
    backend = await open_s3(radosgw_server, access_key=QUOTA_ACCESS_KEY, confirm="etag")
    stored = 0
    with pytest.raises(errors.Full, match="quota"):
        while stored < 40 * QUOTA_OBJECTS:  # what it counts lags behind
            await put(backend, key(stored), b"x")
            stored += 1
            await asyncio.sleep(0.05)
    assert stored >= QUOTA_OBJECTS
    for number in range(stored):
        await backend.delete(key(number))


async def test_the_buckets_name_may_stand_in_the_hosts(
    radosgw_server: S3Server, open_s3: OpenS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host has no address here, so requests go to it through a proxy, as the environment says."""
    async with between(radosgw_server) as way:
        monkeypatch.setenv("http_proxy", way.server.url)
        backend = await open_s3(radosgw_server.at(f"http://{DOMAIN}"), style="virtual")
        await put(backend, key(1), b"virtual")
        assert bytes(await backend.get(key(1))) == b"virtual"
        host = f"{backend._settings.bucket}.{DOMAIN}"
        assert {request.headers["host"] for request in way.heard} == {host}
        assert way.heard[-1].target == f"/{key(1)}"
        monkeypatch.delenv("http_proxy")
    plain = await open_s3(radosgw_server, bucket=backend._settings.bucket)
    assert bytes(await plain.get(key(1))) == b"virtual"


async def test_it_is_of_use_where_it_was_opened_and_until_it_is_closed(
    radosgw_server: S3Server, open_s3: OpenS3
) -> None:
    backend = await open_s3(radosgw_server)

    def elsewhere() -> None:
        with pytest.raises(RuntimeError, match="another event loop"):
            asyncio.run(put(backend, key(1), b"x"))

    await asyncio.to_thread(elsewhere)
    await put(backend, key(1), b"x")
    await backend.close()
    await backend.close()
    assert backend.get_now(key(1)) is None
    for call in (backend.get(key(1)), backend.marker(), backend.delete(key(1))):
        with pytest.raises(RuntimeError, match="closed"):
            await call


async def test_another_process_that_was_forked_is_told(radosgw_server: S3Server, open_s3: OpenS3) -> None:
    backend = await open_s3(radosgw_server)
    backend._pid += 1
    with pytest.raises(RuntimeError, match="before a fork"):
        await backend.get(key(1))


def test_what_opening_takes_is_loaded_before_and_asks_nobody() -> None:
    """In a process of its own: whatever this one has loaded does not count."""
    program = """
import asyncio, socket, sys
from backends.s3.backend import S3
from backends.s3.sessions import prepare_session
from backends.s3.settings import S3Settings
assert "aiobotocore.client" not in sys.modules

def asked(*_):
    raise AssertionError("somebody was asked")

socket.socket.connect = socket.getaddrinfo = asked
asyncio.run(S3.load())
asyncio.run(S3.load())
known = {name for name in sys.modules if "boto" in name}
assert "aiobotocore.client" in known
prepare_session(S3Settings("far", "b", "", "http://h", "r", None, "a", "s", None, "auto", False, None, 1, 1.0, "auto"))
assert {name for name in sys.modules if "boto" in name} == known
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
