"""Who signs an S3 backend's requests: keys from the environment, a profile, a web identity or a container, which are
replaced before they expire."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from backends import errors
from backends.s3.credentials import Credentials
from backends.timing import DriverTiming
from tests.backends.conftest import OpenS3
from tests.backends.contract import key, put
from tests.servers.between import Forward, Heard, answer, between, refusal
from tests.servers.running import S3Server


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


PAUSES = DriverTiming().credential_seconds


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
async def test_keys_are_asked_for_again_while_half_of_the_time_is_left(left_s: float) -> None:
    before = datetime.now(UTC)
    told = (await Credentials(Chain(left_s), PAUSES)()).until
    assert told is not None
    wait_s = (told - before).total_seconds()
    assert wait_s <= max(left_s / 2, 0) + 5
    assert any(abs(wait_s - step) < 5 for step in (*PAUSES, 0))


async def test_a_container_that_gives_no_keys_is_unavailable(container: Any, open_s3: OpenS3) -> None:
    metadata = Metadata(life_s=900)
    container.rule, metadata.broken = metadata.rule, True
    with pytest.raises(errors.Unavailable, match="credentials are not to be had"):
        await open_s3(container.server, access_key=None, secret_key=None)


async def test_a_web_identity_that_is_refused_is_denied(
    moto_server: S3Server, open_s3: OpenS3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def refusing(request: Heard, forward: Forward) -> bytes | None:
        return refusal("403 Forbidden", "AccessDenied", "Not authorized to perform sts:AssumeRoleWithWebIdentity")

    (tmp_path / "token").write_text("header.payload.signature")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/blocks")
    async with between(moto_server) as way:
        way.rule = refusing
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", way.server.url)
        with pytest.raises(errors.Denied, match="credentials are refused"):
            await open_s3(moto_server, access_key=None, secret_key=None)


async def test_half_of_a_profiles_keys_is_a_mistake_in_the_configuration(
    moto_server: S3Server, open_s3: OpenS3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "shared").write_text("[far]\naws_access_key_id = alone\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "shared"))
    with pytest.raises(errors.Misconfigured, match="aws_secret_access_key"):
        await open_s3(moto_server, access_key=None, secret_key=None, profile="far")


async def test_a_profiles_region_that_cannot_be_one_is_a_mistake_in_the_configuration(
    moto_server: S3Server, open_s3: OpenS3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "shared").write_text("[far]\naws_access_key_id = A\naws_secret_access_key = B\nregion = us east\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "shared"))
    with pytest.raises(errors.Misconfigured, match="us east"):
        await open_s3(moto_server, access_key=None, secret_key=None, region=None, profile="far")
