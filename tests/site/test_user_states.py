"""Users are disabled, keys expire, and buckets are given away: in every worker, from the next request on."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from gateway.cli.users import parse_expiry
from gateway.engine.types import Caller
from gateway.errors import AccessDenied, InvalidArgument, NoSuchBucket, NoSuchUser
from gateway.identity.credentials import Credential
from gateway.posix.in_process import caller_of
from gateway.site.admin import users
from gateway.site.site import Site
from gateway.timing import Timing
from tests.clocks import AheadClock
from tests.endpoint import Endpoint
from tests.site.running import client, entrepot

DAY_NS = 86_400 * 10**9


def code_of(call: object) -> str:
    with pytest.raises(ClientError) as refused:
        call()  # type: ignore[operator]
    return str(refused.value.response["Error"]["Code"])


def test_a_disabled_user_is_refused_until_it_is_enabled(endpoint: Endpoint) -> None:
    made = entrepot(endpoint, "user", "add", "disabled-user")
    s3 = client(endpoint, made["access_key"], made["secret_key"])
    s3.create_bucket(Bucket="of-disabled-user")
    entrepot(endpoint, "user", "disable", "disabled-user")
    for _ in range(4):  # whichever worker answers
        assert code_of(s3.list_buckets) == "InvalidAccessKeyId"
    (found,) = (each for each in entrepot(endpoint, "user", "list") if each["name"] == "disabled-user")
    assert (found["disabled"], found["buckets"]) == (True, 1)
    entrepot(endpoint, "user", "enable", "disabled-user")
    assert [each["Name"] for each in s3.list_buckets()["Buckets"]] == ["of-disabled-user"]


def test_a_bucket_is_given_to_another_user(endpoint: Endpoint) -> None:
    giver, taker = (entrepot(endpoint, "user", "add", name) for name in ("giver", "taker"))
    givers, takers = (client(endpoint, each["access_key"], each["secret_key"]) for each in (giver, taker))
    givers.create_bucket(Bucket="given-bucket")
    givers.put_object(Bucket="given-bucket", Key="k", Body=b"data")
    objects = "arn:aws:s3:::given-bucket/*"
    kept = {"Effect": "Allow", "Principal": {"AWS": "giver"}, "Action": "s3:*", "Resource": objects}
    givers.put_bucket_policy(Bucket="given-bucket", Policy=json.dumps({"Statement": kept}))
    givers.delete_public_access_block(Bucket="given-bucket")
    done = entrepot(endpoint, "user", "transfer", "given-bucket", "taker")
    assert done == {"bucket": "given-bucket", "former_owner": "giver", "owner": "taker"}
    assert takers.get_object(Bucket="given-bucket", Key="k")["Body"].read() == b"data"
    assert code_of(lambda: givers.get_object(Bucket="given-bucket", Key="k")) == "AccessDenied"
    assert code_of(lambda: takers.get_bucket_policy(Bucket="given-bucket")) == "NoSuchBucketPolicy"
    blocked = takers.get_public_access_block(Bucket="given-bucket")["PublicAccessBlockConfiguration"]
    assert set(blocked.values()) == {True}
    counts = {each["name"]: each["buckets"] for each in entrepot(endpoint, "user", "list")}
    assert (counts["giver"], counts["taker"]) == (0, 1)
    entrepot(endpoint, "user", "remove", "giver")


def test_a_key_that_expires_is_shown_with_its_time(endpoint: Endpoint) -> None:
    entrepot(endpoint, "user", "add", "expiring-user")
    entrepot(endpoint, "user", "key", "add", "expiring-user", "--expires", "1d")
    never, later = sorted(each["expires_ns"] for each in entrepot(endpoint, "user", "key", "list", "expiring-user"))
    assert never == 0
    assert abs(later - time.time_ns() - DAY_NS) < DAY_NS // 10


# --- in process -----------------------------------------------------------------------------------------------------


async def test_a_key_is_refused_from_the_time_at_which_it_expires(new_folder: Path) -> None:
    clock = AheadClock()
    async with await Site.open(new_folder, timing=Timing(clock=clock)) as site:
        await users.add_user(site, "ada")
        key = await users.add_access_key(site, "ada", expires_ns=clock.wall_ns() + DAY_NS)
        assert site.engine.credential(key.access_key) is not None
        clock.ahead_seconds = 86_300.0
        assert site.engine.credential(key.access_key) is not None
        clock.ahead_seconds = 86_401.0
        assert site.engine.credential(key.access_key) is None
        with pytest.raises(InvalidArgument, match="has passed"):
            await users.add_access_key(site, "ada", expires_ns=1)


async def test_what_cannot_be_done_is_refused(new_folder: Path) -> None:
    async with await Site.open(new_folder) as site:
        await users.add_user(site, "ada")
        with pytest.raises(AccessDenied, match="cannot be disabled"):
            await users.set_disabled(site, "root", True)
        with pytest.raises(NoSuchUser):
            await users.set_disabled(site, "nobody", True)
        with pytest.raises(NoSuchBucket):
            await users.transfer_bucket(site, "nothing", "ada")
        root = Caller("root", site.store.query("SELECT id FROM user WHERE root = 1")[0][0], 1, root=True)
        await site.engine.create_bucket(root, "bucket", "")
        with pytest.raises(NoSuchUser):
            await users.transfer_bucket(site, "bucket", "nobody")
        assert await users.transfer_bucket(site, "bucket", "root") == "root", "to itself"
        await users.set_disabled(site, "ada", True)
        with pytest.raises(AccessDenied, match="ada is disabled"):
            caller_of(site, user="ada")


def test_a_credential_is_accepted_before_it_expires_and_while_its_user_is_enabled() -> None:
    assert Credential("s", "u", 1, 1, False).is_accepted(1 << 62)
    assert Credential("s", "u", 1, 1, False, expires_ns=10).is_accepted(9)
    assert not Credential("s", "u", 1, 1, False, expires_ns=10).is_accepted(10)
    assert not Credential("s", "u", 1, 1, False, disabled=True).is_accepted(0)


@pytest.mark.parametrize(
    ("text", "expires_ns"),
    [
        ("30d", 30 * DAY_NS), ("12h", DAY_NS // 2), ("90m", DAY_NS // 16), ("1970-01-03", 2 * DAY_NS),
        ("1970-01-02T01:00:00+01:00", DAY_NS),
    ],
)  # fmt: skip
def test_the_time_of_expiry_is_a_span_or_a_date(text: str, expires_ns: int) -> None:
    assert parse_expiry(text, 0) == expires_ns


@pytest.mark.parametrize("text", ["", "soon", "0d", "30", "-1d", "1969-12-31", "9999-12-31", "999999d"])
def test_another_time_of_expiry_is_an_error(text: str) -> None:
    with pytest.raises(InvalidArgument, match="--expires"):
        parse_expiry(text, 10**9)
