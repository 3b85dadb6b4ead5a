"""obstore: the Rust object_store crate, with a signer and an HTTP client of its own."""

import hashlib

import obstore
import pytest
from obstore.store import S3Store

from tests.clients.conftest import MIB
from tests.clients.odd_keys import odd_keys

CANNOT = dict.fromkeys(
    ("doubled slash", "leading slash", "dots", "dots alone", "trailing slash", "control characters"),
    "the client's paths have no empty, `.` or `..` segments, no slash at either end, and no control characters",
)


@pytest.fixture
def store(endpoint, bucket):
    return S3Store(
        bucket,
        endpoint=endpoint.url,
        access_key_id=endpoint.access_key,
        secret_access_key=endpoint.secret_key,
        region=endpoint.region,
        client_options={"allow_http": True},
    )


def test_an_object_comes_back_as_it_went(store, payload):
    with payload.path.open("rb") as file:
        obstore.put(store, "k", file)
    assert obstore.head(store, "k")["size"] == payload.size
    digest = hashlib.sha256()
    for chunk in obstore.get(store, "k").stream(min_chunk_size=MIB):
        digest.update(chunk)
    assert digest.hexdigest() == payload.sha256


async def test_one_put_and_many_ranges_at_once(store, payloads):
    body = payloads["just over a part"].read()
    await obstore.put_async(store, "k", body, use_multipart=False)
    starts = [0, 1, 65_535, 65_536, 1_000_000, 5 * MIB]
    ranges = await obstore.get_ranges_async(store, "k", starts=starts, lengths=[1] * len(starts))
    assert [bytes(each) for each in ranges] == [body[start : start + 1] for start in starts]
    assert bytes(await obstore.get_range_async(store, "k", start=100, end=200_000)) == body[100:200_000]


def test_odd_keys_are_put_got_listed_copied_renamed_and_deleted(store):
    keys = list(odd_keys(CANNOT).values())
    for key in keys:
        obstore.put(store, key, key.encode())
    listed = [each["path"] for page in obstore.list(store) for each in page]
    assert listed == sorted(keys, key=str.encode)
    for key in keys:
        assert bytes(obstore.get(store, key).bytes()) == key.encode()
        obstore.copy(store, key, "copy")
        assert bytes(obstore.get(store, "copy").bytes()) == key.encode()
    obstore.rename(store, "copy", "renamed")
    obstore.delete(store, [*keys, "renamed"])
    assert [each for page in obstore.list(store) for each in page] == []


def test_folders_are_rolled_up(store):
    for key in ("a/1", "a/2", "b/1", "top"):
        obstore.put(store, key, b"x")
    listed = obstore.list_with_delimiter(store)
    assert listed["common_prefixes"] == ["a", "b"]
    assert [each["path"] for each in listed["objects"]] == ["top"]


def test_a_key_is_created_once_and_replaced_only_as_it_was_seen(store):
    first = obstore.put(store, "k", b"1", mode="create")
    with pytest.raises(obstore.exceptions.AlreadyExistsError):
        obstore.put(store, "k", b"2", mode="create")
    seen = {"e_tag": first["e_tag"]}
    obstore.put(store, "k", b"3", mode=seen)
    with pytest.raises(obstore.exceptions.PreconditionError):
        obstore.put(store, "k", b"4", mode=seen)
    assert bytes(obstore.get(store, "k").bytes()) == b"3"


def test_an_absent_key_is_not_found(store):
    with pytest.raises(FileNotFoundError):
        obstore.get(store, "absent")
