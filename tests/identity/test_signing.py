"""Our signer, AWS's own (botocore) and our verifier agree on any request."""

from datetime import UTC, datetime
from urllib.parse import parse_qsl, quote, urlsplit

import pytest
from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from gateway.identity import signature_errors as errors
from gateway.identity import signing
from gateway.identity.canonical import UNSIGNED_PAYLOAD
from gateway.identity.sigv4 import PayloadKind, SignedRequest, verify
from tests.identity import amazon
from tests.identity.amazon import ACCESS_KEY, NOW, REGION, SECRET_KEY

HOST = "127.0.0.1:9000"
THEN = datetime.fromtimestamp(NOW, UTC)
CREDENTIALS = Credentials(ACCESS_KEY, SECRET_KEY)
KEYS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=30)
VALUES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
QUERIES = st.dictionaries(
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=10).filter(
        lambda name: not name.startswith("X-Amz-")
    ),
    VALUES,
    max_size=4,
)
METHODS = st.sampled_from(["GET", "PUT", "HEAD", "DELETE", "POST"])
METADATA = st.dictionaries(
    st.from_regex(r"x-amz-meta-[a-z0-9-]{1,8}", fullmatch=True),
    st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=20),
    max_size=3,
)


@pytest.fixture(autouse=True)
def at_amazons_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda remove_tzinfo=True: THEN.replace(tzinfo=None))


def url(key: str, query: dict[str, str]) -> str:
    text = "&".join(f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}" for name, value in query.items())
    return f"http://{HOST}/bucket/{quote(key, safe='/-_.~')}" + (f"?{text}" if text else "")


def received(method: str, target: str, headers: dict[str, str]) -> SignedRequest:
    path, _, query = target.removeprefix(f"http://{HOST}").partition("?")
    return SignedRequest(method, path, query, {"host": HOST, **{n.lower(): v for n, v in headers.items()}})


@given(method=METHODS, key=KEYS, query=QUERIES, metadata=METADATA)
def test_what_botocore_signs_in_a_header_holds(
    method: str, key: str, query: dict[str, str], metadata: dict[str, str]
) -> None:
    request = AWSRequest(method, url(key, query), headers=dict(metadata), data=b"body")
    S3SigV4Auth(CREDENTIALS, "s3", REGION).add_auth(request)
    headers = {name: str(value) for name, value in request.headers.items()}
    found = verify(received(method, request.url, headers), amazon.secret_of, NOW, REGION)
    assert found.access_key == ACCESS_KEY
    with pytest.raises(errors.SignatureDoesNotMatch):
        verify(received(method, request.url.replace("/bucket/", "/other/", 1), headers), amazon.secret_of, NOW, REGION)


@given(method=METHODS, key=KEYS, query=QUERIES, expires=st.integers(1, 604_800))
def test_what_botocore_presigns_holds(method: str, key: str, query: dict[str, str], expires: int) -> None:
    request = AWSRequest(method, url(key, query))
    S3SigV4QueryAuth(CREDENTIALS, "s3", REGION, expires=expires).add_auth(request)
    found = verify(received(method, request.url, {}), amazon.secret_of, NOW + expires, REGION)
    assert found.payload is PayloadKind.UNSIGNED
    assert found.presigned
    with pytest.raises(errors.AccessDeniedError):
        verify(received(method, request.url, {}), amazon.secret_of, NOW + expires + 1, REGION)


@given(method=METHODS, key=KEYS, expires=st.integers(1, 604_800))
def test_we_presign_as_botocore_does(method: str, key: str, expires: int) -> None:
    request = AWSRequest(method, url(key, {}))
    S3SigV4QueryAuth(CREDENTIALS, "s3", REGION, expires=expires).add_auth(request)
    ours = presigned(method, key, {}, expires)
    assert dict(parse_qsl(urlsplit(ours).query)) == dict(parse_qsl(urlsplit(request.url).query))
    assert urlsplit(ours).path == urlsplit(request.url).path


def presigned(method: str, key: str, query: dict[str, str], expires: int) -> str:
    return (
        "http://"
        + HOST
        + signing.presign(
            method,
            host=HOST,
            path=f"/bucket/{key}",
            access_key=ACCESS_KEY,
            secret_key=SECRET_KEY,
            region=REGION,
            now=THEN,
            expires=expires,
            query=query,
        )
    )


@given(method=METHODS, key=KEYS, query=QUERIES)
def test_what_we_presign_holds(method: str, key: str, query: dict[str, str]) -> None:
    target = presigned(method, key, query, 60)
    assert verify(received(method, target, {}), amazon.secret_of, NOW, REGION).presigned
    with pytest.raises(errors.SignatureDoesNotMatch):
        verify(received(method, target + "&x=1", {}), amazon.secret_of, NOW, REGION)


@given(method=METHODS, key=KEYS, query=QUERIES, metadata=METADATA)
def test_what_we_sign_in_a_header_holds(method: str, key: str, query: dict[str, str], metadata: dict[str, str]) -> None:
    path, _, text = url(key, query).removeprefix(f"http://{HOST}").partition("?")
    headers = signing.sign_headers(
        method,
        raw_path=path,
        raw_query=text,
        headers={"host": HOST, **metadata},
        payload=UNSIGNED_PAYLOAD,
        access_key=ACCESS_KEY,
        secret_key=SECRET_KEY,
        region=REGION,
        now=THEN,
    )
    assert verify(SignedRequest(method, path, text, headers), amazon.secret_of, NOW, REGION).payload.name == "UNSIGNED"


def test_our_signer_makes_amazons_example() -> None:
    example = amazon.GET_RANGE
    headers = signing.sign_headers(
        "GET",
        raw_path=example.path,
        headers={"host": amazon.HOST, "range": "bytes=0-9"},
        access_key=ACCESS_KEY,
        secret_key=SECRET_KEY,
        region=REGION,
        now=THEN,
    )
    assert headers == {**example.headers, "authorization": example.request().headers["authorization"]}


def test_our_presigned_url_is_amazons_example() -> None:
    made = signing.presign(
        "GET",
        host=amazon.HOST,
        path="/test.txt",
        access_key=ACCESS_KEY,
        secret_key=SECRET_KEY,
        region=REGION,
        now=THEN,
        expires=86_400,
    )
    assert made == f"{amazon.PRESIGNED.raw_path}?{amazon.PRESIGNED.raw_query}"
