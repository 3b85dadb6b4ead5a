"""Hostile requests by a user with a valid key are refused, and never fail the gateway."""

from __future__ import annotations

import asyncio
import base64
import secrets
from types import SimpleNamespace

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.engine.types import ByteRange, Conditions, ObjectInfo, ObjectMeta, Page, WantedPart
from gateway.errors import BY_WIRE_CODE, InvalidArgument
from gateway.posix.api import parameters
from gateway.posix.metadata import check_meta
from gateway.posix.rpc import protocol
from gateway.posix.rpc.methods import METHODS, OPEN_METHOD, WRITE_METHODS
from gateway.posix.rpc.protocol import MethodCall, RpcRequest
from gateway.posix.rpc.schema import SchemaError
from tests.s3api.client import Signer

UNHURRIED = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def signer(served):
    site = SimpleNamespace(port=int(served.url.rpartition(":")[2]))
    return Signer(site, served.access_key, served.secret_key)


def post(signer, name: str, body: bytes = b"", query: str = "", **options):
    return asyncio.run(signer.request("POST", f"/.entrepot/{name}", query, body, **options))


def in_query(packed: bytes) -> str:
    return f"call={base64.urlsafe_b64encode(packed).decode().replace('=', '%3D')}"


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
NAMES = st.sampled_from([*METHODS, *WRITE_METHODS, "open", "close", "__init__", "_again", "none"])


@UNHURRIED
@given(body=st.binary(max_size=200) | PLAIN.map(msgpack.packb))
def test_what_is_no_request_is_refused(signer, body):
    answer = post(signer, "verbs", body)
    assert (answer.status, answer.code) == (400, "InvalidArgument")


@UNHURRIED
@given(
    calls=st.lists(st.tuples(NAMES, st.lists(PLAIN, max_size=8)), min_size=1, max_size=4),
    once=st.booleans(),
    how=st.sampled_from([{}, {"stop_on_error": True}, {"parallel": True}]),
    known_store=st.text(max_size=5),
)
def test_any_arguments_of_any_method_are_answered(signer, calls, once, how, known_store):
    body = protocol.pack_request(
        RpcRequest(
            [MethodCall(*each) for each in calls],
            idempotency_key=secrets.token_bytes(16) if once else b"",
            known_store=known_store,
            **how,
        )
    )
    answer = post(signer, "verbs", body)
    assert answer.status in (200, 400), answer.body
    if answer.status == 200:
        results = protocol.unpack_response(answer.body).results
        assert len(results) == len(calls)
        assert all(each[0] != protocol.OK for each in results)


@UNHURRIED
@given(data=st.data())
def test_plausible_arguments_are_never_the_gateways_fault(signer, data):
    text = st.sampled_from(["", "b", "bucket-0", "a" * 300, "..", "\x00", "é"]) | st.text(max_size=20)
    key = st.sampled_from([b"", b"/", b"a//b", b"..", b"\xff", b"k" * 1025, b"\x00", b"a/b"]) | st.binary(max_size=20)
    values = {
        "bucket": text, "to_bucket": text, "name": text, "after": text | key, "key": key, "to_key": key, "path": key,
        "to_path": key, "source": key, "prefix": key, "delimiter": key, "upload": text, "etag": text,
        "keys": st.lists(key, max_size=4), "must_exist": st.booleans(), "directory": st.booleans(),
        "number": st.integers(-2, 10_002), "size": st.integers(-1, 2),
        "wanted": st.none() | st.tuples(st.none() | st.integers(-2, 99), st.none() | st.integers(-2, 99)),
        "meta": st.tuples(st.dictionaries(text, text, max_size=3), st.dictionaries(text, text, max_size=3)),
        "conditions": st.tuples(
            st.lists(text, max_size=2), st.lists(text, max_size=2), *[st.none() | st.integers(-(1 << 63), 1 << 63)] * 4
        ),
        "parts": st.lists(st.tuples(st.integers(-1, 3), text), max_size=3),
    }  # fmt: skip
    name, method = data.draw(st.sampled_from([*METHODS.items(), *WRITE_METHODS.items(), ("open", OPEN_METHOD)]))
    arguments = [data.draw(values[each]) for each in method.arguments]
    asked = protocol.pack_request(RpcRequest([MethodCall(name, arguments)], idempotency_key=secrets.token_bytes(16)))
    if name in WRITE_METHODS:
        answer = post(signer, "write", b"ab", in_query(asked))
    elif name == "open":
        answer = post(signer, "read", b"", in_query(asked))
    else:
        answer = post(signer, "verbs", asked)
    assert answer.status in (200, 400), answer.body
    assert b"failed" not in answer.body


@pytest.mark.parametrize(
    ("said", "match"),
    [
        ({"speaks": [2, 3], "verbs": []}, "this gateway supports: 1"),
        ({"verbs": []}, "speaks must be a list"),
        ({"speaks": [1], "verbs": [["look", ["b", b"k"]]] * 65}, "at most 64"),
        ({"speaks": [1], "verbs": [["mkdir", ["b", b"k"]]]}, "needs `once`"),
        ({"speaks": [1], "verbs": [["look", ["b", b"k"]]], "once": b"short"}, "once must have 16 bytes"),
        ({"speaks": [1], "verbs": [["page", ["b", b"", b"", b""]]], "once": bytes(16)}, "listings"),
        ({"speaks": [1], "verbs": [["look"]]}, "a name and a list"),
        ({"speaks": [1], "verbs": [], "stop": True, "together": True}, "exclude each other"),
        ({"speaks": [1], "verbs": [], "together": 1}, "together must be a boolean"),
    ],
)
def test_a_request_that_is_wrong_is_told_what_is_wrong(signer, said, match):
    answer = post(signer, "verbs", msgpack.packb(said))
    assert (answer.status, answer.code) == (400, "InvalidArgument")
    assert match in answer.xml("Message")


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["b"], "needs bucket, key"),
        (["b", "text"], "look.key must be bytes, not a string"),
        ([7, b"k"], "look.bucket must be a string, not a number"),
        (["b", b"k" * 5000], "out of bounds"),
    ],
)
def test_a_verb_that_is_wrong_is_told_what_is_wrong(signer, arguments, match):
    answer = post(signer, "verbs", protocol.pack_request(RpcRequest([MethodCall("look", arguments)])))
    _, name, (said,) = protocol.unpack_response(answer.body).results[0]
    assert name == "InvalidArgument"
    assert match in said


def test_what_is_too_long_or_too_deep_is_refused(signer):
    assert post(signer, "verbs", bytes(protocol.REQUEST_BYTES_MOST + 1)).code == "EntityTooLarge"
    assert post(signer, "verbs", b"\x91" * 100_000 + b"\x01").code == "InvalidArgument"
    assert post(signer, "read", b"", "call=" + "A" * (protocol.CALL_CHARS_MOST + 4)).code == "EntityTooLarge"
    assert post(signer, "read", b"", "call=%21").code == "InvalidArgument"
    assert post(signer, "read", b"body", in_query(protocol.pack_request(RpcRequest([])))).code == "InvalidArgument"
    assert post(signer, "elsewhere").code == "InvalidArgument"
    assert post(signer, "verbs", protocol.pack_request(RpcRequest([])), "attempt=x").code == "InvalidArgument"


def test_a_request_is_signed_with_its_payload_and_by_its_head(signer):
    body = protocol.pack_request(RpcRequest([]))
    assert post(signer, "verbs", body).status == 200
    assert post(signer, "verbs", body, payload="UNSIGNED-PAYLOAD").code == "AccessDenied"
    assert post(signer, "verbs", body, payload="0" * 64).code == "XAmzContentSHA256Mismatch"
    stranger = Signer(signer.site, signer.access_key, "another-secret")
    assert post(stranger, "verbs", body).code == "SignatureDoesNotMatch"


def test_other_methods_and_other_keys_are_s3s(signer):
    for method, path in (("GET", "/.entrepot/verbs"), ("PUT", "/.entrepot/verbs"), ("DELETE", "/.entrepot/x")):
        assert asyncio.run(signer.request(method, path)).code in ("NoSuchBucket", "InvalidBucketName")
    assert asyncio.run(signer.request("POST", "/bucket/key")).code == "MethodNotAllowed"
    assert asyncio.run(signer.request("PUT", "/.entrepot")).code == "InvalidBucketName"


@pytest.mark.parametrize(
    "meta",
    [
        ObjectMeta({"x-amz-meta-a\r\nset-cookie": "x"}), ObjectMeta({"x-amz-meta-a": "x\r\nset-cookie: y"}),
        ObjectMeta({"content-length": "7"}), ObjectMeta({"x-amz-meta-": "x"}), ObjectMeta({"x-amz-meta-A": "x"}),
        ObjectMeta({"x-amz-meta-a": "x" * 3000}), ObjectMeta({"content-type": "\ud800"}),
        ObjectMeta({}, {"": "x"}), ObjectMeta({}, {"aws:x": "y"}),
        ObjectMeta({}, {str(number): "" for number in range(11)}),
    ],
)  # fmt: skip
def test_metadata_that_no_header_can_hold_is_refused(meta):
    with pytest.raises(InvalidArgument):
        check_meta(meta)


# --- the format -------------------------------------------------------------------------------------------------------

TEXTS = st.dictionaries(st.text(max_size=9), st.text(max_size=9), max_size=3)
NUMBERS = st.integers(0, 1 << 62)
OBJECTS = st.builds(
    ObjectInfo, key=st.binary(max_size=99), size=NUMBERS, etag=st.text(max_size=40), modified_ns=NUMBERS,
    version=st.none() | st.text(max_size=9), is_latest=st.booleans(), headers=TEXTS, tags_count=NUMBERS,
    checksums=st.binary(max_size=99), parts_count=NUMBERS, owner=NUMBERS,
)  # fmt: skip
SHOWN = st.tuples(st.binary(max_size=9), NUMBERS, st.text(max_size=9), NUMBERS, NUMBERS, st.none() | st.binary())
PAGES = st.builds(
    Page, groups=st.lists(st.tuples(st.binary(max_size=9), st.lists(SHOWN, max_size=3)), max_size=3),
    prefixes=st.lists(st.binary(max_size=9), max_size=3), next=st.none() | st.binary(max_size=9),
)  # fmt: skip
RANGES = st.builds(ByteRange, st.none() | NUMBERS, st.none() | NUMBERS)
CONDITIONS = st.builds(
    Conditions, if_match=st.lists(st.text(max_size=9), max_size=2).map(tuple), if_size=st.none() | NUMBERS
)  # fmt: skip


def there_and_back(schema, value):
    return schema.decode(protocol.unpack(protocol.pack(schema.encode(value)), "it"), "it")


@given(found=OBJECTS, page=PAGES, wanted=RANGES, conditions=CONDITIONS, meta=st.builds(ObjectMeta, TEXTS, TEXTS))
def test_every_value_comes_back_as_it_went(found, page, wanted, conditions, meta):
    assert there_and_back(METHODS["look"].result, found) == found
    assert there_and_back(METHODS["page"].result, page) == page
    arguments = ("bucket", b"key", wanted, conditions)
    encoded = protocol.unpack(protocol.pack(OPEN_METHOD.encode(*arguments)), "it")
    assert OPEN_METHOD.decode("open", encoded) == list(arguments)
    arguments = ("bucket", b"key", "upload", [WantedPart(1, "etag")], conditions)
    method = METHODS["complete_upload"]
    assert method.decode("x", protocol.unpack(protocol.pack(method.encode(*arguments)), "it")) == list(arguments)
    assert there_and_back(METHODS["begin_upload"].arguments["meta"], meta) == meta


@pytest.mark.parametrize("name", sorted(BY_WIRE_CODE))
def test_every_error_comes_back_as_it_went(name):
    error = BY_WIRE_CODE[name]("text", b"bytes", 7)
    name, args = protocol.unpack(protocol.pack(protocol.encode_error(error)), "it")
    again = protocol.decode_error(name, args)
    assert type(again) is type(error)
    assert again.args == error.args


def test_what_a_newer_speaker_adds_behind_is_passed_over():
    assert METHODS["mkdir"].decode("mkdir", ("b", b"k", "more")) == ["b", b"k"]
    assert type(protocol.decode_error("FromTomorrow", ("said",))).__name__ == "Refused"
    with pytest.raises(SchemaError):
        protocol.unpack_response(protocol.pack_response(7, "", []))


@pytest.mark.parametrize("name", [*METHODS, *WRITE_METHODS, "open"])
def test_the_arguments_on_the_wire_are_those_of_the_methods_signature_but_for_the_body(name):
    method = (METHODS | WRITE_METHODS | {"open": OPEN_METHOD})[name]
    positional, keyword_only = parameters(name)
    assert list(method.arguments) == [each for each in (*positional, *keyword_only) if each != "body"]
