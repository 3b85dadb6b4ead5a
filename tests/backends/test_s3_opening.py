"""Opening an S3 backend: what is in the way is told with what, where, and what to do; and who signs the requests."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from backends import errors
from backends.s3 import S3
from backends.s3_credentials import ASK_AGAIN_S, Credentials
from backends.s3_settings import S3Settings
from tests.backends.conftest import OpenS3
from tests.backends.contract import key, put
from tests.certificates import self_signed
from tests.servers.between import Forward, Heard, answer, between, refusal
from tests.servers.radosgw import DOMAIN, QUOTA_ACCESS_KEY, QUOTA_OBJECTS
from tests.servers.running import S3Server, free_port

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
    ({"ca_file": os.devnull}, "holds no certificate"),
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
        "s3", bucket, "", None, None, None, None, None, None, style, False, None, 1, 1.0, 1.0, "auto"
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
    with pytest.raises(errors.Misconfigured, match="there is no such bucket; create it, or set create_bucket"):
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


@pytest.fixture
async def own_ca(tmp_path: Path) -> tuple[ssl.SSLContext, str]:
    """A server's side of TLS that no authority of this machine signed, and the file that a client needs for it."""
    certificate, private = self_signed("entrepot.test")
    (tmp_path / "ca.pem").write_bytes(certificate)
    (tmp_path / "key.pem").write_bytes(private)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "ca.pem", tmp_path / "key.pem")
    return context, str(tmp_path / "ca.pem")


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
        backend._ca_pem = None
        with pytest.raises(errors.Misconfigured, match="certificate is not trusted"):
            await put(await _without_ca(backend), key(2), b"x")


async def _without_ca(backend: S3) -> S3:
    """The same, whose bytes go by a client that does not know the authority."""
    from backends.s3_store import new_store

    backend._store = new_store(backend._settings, backend._control, backend._credentials, None, checked=False)
    return backend


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


async def test_credentials_come_from_the_environment_or_a_profile(
    radosgw_server: S3Server, open_s3: OpenS3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own = {"access_key": None, "secret_key": None}
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", radosgw_server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", radosgw_server.secret_key)
    await put(await open_s3(radosgw_server, **own), key(1), b"x")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "NOBODY")
    lines = ["[far]", f"aws_access_key_id = {radosgw_server.access_key}"]
    lines += [f"aws_secret_access_key = {radosgw_server.secret_key}"]
    (tmp_path / "shared").write_text("\n".join(lines))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "shared"))
    await put(await open_s3(radosgw_server, **own, profile="far"), key(1), b"x")


async def test_a_web_identity_is_exchanged_for_keys(
    moto_server: S3Server, open_s3: OpenS3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("header.payload.signature")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/blocks")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", moto_server.url)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    async with between(moto_server) as way:
        backend = await open_s3(way.server, access_key=None, secret_key=None)
        await put(backend, key(1), b"x")
        assert way.heard[-1].access_key.startswith("ASIA")
        assert way.heard[-1].headers["x-amz-security-token"]


class Metadata:
    """The endpoint of a container's credentials: each time other keys, good for *life_s* seconds."""

    def __init__(self, life_s: float) -> None:
        self.life_s, self.expiry, self.broken = life_s, dict[str, datetime](), False

    async def rule(self, request: Heard, forward: Forward) -> bytes | None:
        if request.target != "/keys":
            return await forward(request)
        if self.broken:
            return answer("500 Internal Server Error")
        name = f"CONTAINERKEY{len(self.expiry):04}"
        until = self.expiry[name] = datetime.now(UTC) + timedelta(seconds=self.life_s)
        keys = {"AccessKeyId": name, "SecretAccessKey": "s", "Token": "t", "Expiration": until.isoformat()}
        return answer("200 OK", json.dumps(keys).encode(), content_type="application/json")


@pytest.fixture
async def container(moto_server: S3Server, monkeypatch: pytest.MonkeyPatch, no_own_keys: None) -> AsyncIterator[Any]:
    async with between(moto_server) as way:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{way.server.url}/keys")
        yield way


async def test_keys_that_expire_are_replaced_before_they_do(container: Any, open_s3: OpenS3) -> None:
    metadata = Metadata(life_s=16)
    container.rule = metadata.rule
    backend = await open_s3(container.server, access_key=None, secret_key=None)
    await put(backend, key(1), b"x")
    used: set[str] = set()
    while len(used) < 3:
        await backend.get(key(1))
        signed = container.heard[-1].access_key
        assert datetime.now(UTC) < metadata.expiry[signed], "signed with a key that had expired"
        used.add(signed)
        await asyncio.sleep(0.1)


async def test_keys_that_cannot_be_renewed_are_unavailable_and_come_back(container: Any, open_s3: OpenS3) -> None:
    metadata = Metadata(life_s=2)
    container.rule = metadata.rule
    backend = await open_s3(container.server, access_key=None, secret_key=None)
    await put(backend, key(1), b"x")
    metadata.broken = True
    with pytest.raises(errors.Unavailable, match="no fresh credentials"):
        while True:
            await backend.get(key(1))
            await asyncio.sleep(0.1)
    metadata.broken = False
    assert bytes(await backend.get(key(1))) == b"x"


class Chain:
    """A chain whose keys have so many seconds left."""

    def __init__(self, left_s: float) -> None:
        self.left_s = left_s

    def refresh_needed(self, refresh_in: float) -> bool:
        return self.left_s < refresh_in

    async def get_frozen_credentials(self) -> Any:
        class Frozen:
            access_key, secret_key, token = "a", "s", None

        return Frozen


@pytest.mark.parametrize("left_s", [0, 1, 3, 10, 59, 100, 119, 120, 900, 3_600])
async def test_obstore_asks_again_while_half_of_the_time_is_left(left_s: float) -> None:
    before = datetime.now(UTC)
    told = (await Credentials(Chain(left_s))())["expires_at"]
    assert told is not None
    wait_s = (told - before).total_seconds()
    assert wait_s <= max(left_s / 2, 0) + 5
    assert any(abs(wait_s - step) < 5 for step in (*ASK_AGAIN_S, 0))


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
