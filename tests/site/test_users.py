"""Users over a running gateway: what they own, what they may not touch, and that a removed key is refused at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from tests.endpoint import Endpoint, run_entrepot
from tests.site.running import client, entrepot


def code(refused: pytest.ExceptionInfo[ClientError]) -> str:
    return str(refused.value.response["Error"]["Code"])


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A user's name of this test alone, for all share one site."""
    return request.node.name.replace("_", "-")[:60]


def test_each_owns_what_it_creates_and_another_is_denied(endpoint: Endpoint, name: str) -> None:
    ada = entrepot(endpoint, "user", "add", f"{name[:50]}-ada")
    eve = entrepot(endpoint, "user", "add", f"{name[:50]}-eve")
    adas = client(endpoint, ada["access_key"], ada["secret_key"])
    eves = client(endpoint, eve["access_key"], eve["secret_key"])
    adas.create_bucket(Bucket="adas-own")
    adas.put_object(Bucket="adas-own", Key="letter", Body=b"dear")
    for act in (
        lambda: eves.get_object(Bucket="adas-own", Key="letter"),
        lambda: eves.put_object(Bucket="adas-own", Key="letter", Body=b"forged"),
        lambda: eves.delete_object(Bucket="adas-own", Key="letter"),
        lambda: eves.list_objects_v2(Bucket="adas-own"),
        lambda: eves.create_multipart_upload(Bucket="adas-own", Key="big"),
        lambda: eves.delete_bucket(Bucket="adas-own"),
    ):
        with pytest.raises(ClientError) as refused:
            act()
        assert code(refused) == "AccessDenied"
    with pytest.raises(ClientError) as taken:
        eves.create_bucket(Bucket="adas-own")
    assert code(taken) == "BucketAlreadyExists"
    assert [each["Name"] for each in eves.list_buckets()["Buckets"]] == []
    assert adas.get_object(Bucket="adas-own", Key="letter")["Body"].read() == b"dear"
    assert client(endpoint).get_object(Bucket="adas-own", Key="letter")["Body"].read() == b"dear"  # root may


def test_a_removed_key_is_refused_with_the_next_request(endpoint: Endpoint, name: str) -> None:
    first = entrepot(endpoint, "user", "add", name)
    second = entrepot(endpoint, "user", "key", "add", name)
    by_first = client(endpoint, first["access_key"], first["secret_key"])
    by_second = client(endpoint, second["access_key"], second["secret_key"])
    by_first.list_buckets()
    by_second.list_buckets()
    entrepot(endpoint, "user", "key", "remove", first["access_key"])
    with pytest.raises(ClientError) as refused:
        by_first.list_buckets()
    assert code(refused) == "InvalidAccessKeyId"
    by_second.list_buckets()
    entrepot(endpoint, "user", "remove", name)
    with pytest.raises(ClientError) as refused:
        by_second.list_buckets()
    assert code(refused) == "InvalidAccessKeyId"


def test_a_user_that_owns_a_bucket_stays_until_that_is_gone(endpoint: Endpoint, name: str) -> None:
    made = entrepot(endpoint, "user", "add", name)
    theirs = client(endpoint, made["access_key"], made["secret_key"])
    theirs.create_bucket(Bucket="still-theirs")
    refused = run_entrepot("user", "remove", name, "--site", str(endpoint.dir), check=False)
    assert refused.returncode == 1
    assert "owns 1 bucket" in refused.stderr
    theirs.delete_bucket(Bucket="still-theirs")
    entrepot(endpoint, "user", "remove", name)


def test_a_chosen_key_is_taken_from_a_file_and_not_repeated(endpoint: Endpoint, name: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("chosen/secret+key0123456789\n")
    told = entrepot(endpoint, "user", "add", name, "--access-key", "CHOSENKEY0", "--secret-key-file", str(secret))
    assert told == {"user": name, "access_key": "CHOSENKEY0"}
    client(endpoint, "CHOSENKEY0", "chosen/secret+key0123456789").list_buckets()
    with pytest.raises(ClientError) as refused:
        client(endpoint, "CHOSENKEY0", "another/secret").list_buckets()
    assert code(refused) == "SignatureDoesNotMatch"
    again = run_entrepot(
        "user", "key", "add", name, "--access-key", "CHOSENKEY0", "--secret-key-file", str(secret),
        "--site", str(endpoint.dir), check=False,
    )  # fmt: skip
    assert (again.returncode, again.stderr) == (1, "entrepot: the access key CHOSENKEY0 is taken\n")


def test_users_and_keys_are_listed_without_secrets(endpoint: Endpoint, name: str) -> None:
    made = entrepot(endpoint, "user", "add", name)
    users = {each["name"]: each for each in entrepot(endpoint, "user", "list")}
    assert users["root"]["root"] is True
    assert users[name]["access_keys"] == [made["access_key"]]
    (key,) = entrepot(endpoint, "user", "key", "list", name)
    assert key.keys() == {"access_key", "user", "made_ns", "expires_ns"}
    for command in (["user", "list"], ["user", "key", "list"]):
        assert made["secret_key"] not in run_entrepot(*command, "--site", str(endpoint.dir)).stdout
