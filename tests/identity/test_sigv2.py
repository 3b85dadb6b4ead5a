"""Presigned URLs of Signature Version 2: botocore's are accepted, and each single deviation from them is refused."""

from urllib.parse import quote

import pytest
from botocore.auth import HmacV1Auth, HmacV1QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from gateway.identity import signature_errors as errors
from gateway.identity.sigv2 import SIGNED_PARAMETERS
from gateway.identity.sigv4 import PayloadKind, SignedRequest, VerifiedRequest, is_anonymous, verify
from tests.identity import amazon
from tests.identity.amazon import ACCESS_KEY, NOW, REGION, SECRET_KEY

HOST = "127.0.0.1:9000"
TYPED = {"content-type": "text/plain", "content-md5": "1B2M2Y8AsgTpgAmy7PhCfg==", "x-amz-meta-a": "1", "x-amz-acl": "x"}
TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=20)


@pytest.fixture(autouse=True)
def at_amazons_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("botocore.auth.time.time", lambda: NOW)


def signed(
    method: str = "GET",
    key: str = "a/b",
    query: str = "",
    headers: dict[str, str] | None = None,
    expires: int = 60,
    secret: str = SECRET_KEY,
    token: str | None = None,
) -> SignedRequest:
    """What a client sends that botocore has presigned the address for, with *headers* in the address."""
    url = f"http://{HOST}/bucket/{quote(key, safe='/-_.~')}" + (f"?{query}" if query else "")
    request = AWSRequest(method, url, headers=dict(headers or {}))
    HmacV1QueryAuth(Credentials(ACCESS_KEY, secret, token), expires).add_auth(request)
    path, _, text = request.url.removeprefix(f"http://{HOST}").partition("?")
    return SignedRequest(method, path, text, {"host": HOST})


def checked(request: SignedRequest, now: float = NOW) -> VerifiedRequest:
    return verify(request, amazon.secret_of, now, REGION)


def changed(request: SignedRequest, old: str, new: str) -> SignedRequest:
    assert old in request.raw_query
    return request._replace(raw_query=request.raw_query.replace(old, new))


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE"])
@pytest.mark.parametrize("key", ["plain", "odd +%&?é/..//x"])
@pytest.mark.parametrize(
    "query", ["", "uploads", "versionId=null&partNumber=1", "response-content-type=a%2Bb%3B%20c%3Dd"]
)
def test_what_botocore_presigns_holds(method: str, key: str, query: str) -> None:
    found = checked(signed(method, key, query))
    assert (found.access_key, found.payload, found.presigned) == (ACCESS_KEY, PayloadKind.UNSIGNED, True)
    assert not is_anonymous(signed(method, key, query))


@given(key=TEXT, values=st.dictionaries(st.sampled_from(sorted(SIGNED_PARAMETERS)), TEXT, max_size=4), meta=TEXT)
def test_whatever_botocore_presigns_holds_until_a_value_is_another(key: str, values: dict[str, str], meta: str) -> None:
    query = "&".join(f"{name}={quote(value, safe='')}" for name, value in values.items())
    request = signed("PUT", key, query, {"x-amz-meta-a": meta.strip()})
    if any(piece.partition("=")[0] in SIGNED_PARAMETERS for value in values.values() for piece in value.split("&")[1:]):
        with pytest.raises(errors.InvalidArgumentError):
            checked(request)
        return
    checked(request)
    with pytest.raises(errors.SignatureError):
        checked(request._replace(raw_path=request.raw_path + "x"))
    for name in values:
        with pytest.raises(errors.SignatureDoesNotMatch):
            checked(changed(request, f"{name}=", f"{name}=x"))


def test_what_is_signed_is_what_botocore_signs() -> None:
    assert frozenset(HmacV1Auth.QSAOfInterest) == SIGNED_PARAMETERS


def test_signed_headers_may_stay_in_the_query_or_come_as_headers_or_both() -> None:
    request = signed("PUT", headers=TYPED)
    checked(request)
    checked(request._replace(headers={"host": HOST, **TYPED}))
    kept = "&".join(item for item in request.raw_query.split("&") if item[0] in "ASE")
    checked(request._replace(raw_query=kept, headers={"host": HOST, **TYPED}))
    with pytest.raises(errors.SignatureDoesNotMatch):
        checked(request._replace(raw_query=kept))
    for name, value in TYPED.items():
        with pytest.raises(errors.InvalidArgumentError, match="differ"):
            checked(request._replace(headers={"host": HOST, name: "other"}))
        with pytest.raises(errors.SignatureDoesNotMatch):
            checked(signed("PUT")._replace(headers={"host": HOST, name: value}))


def test_a_path_that_is_a_bucket_is_signed_with_a_slash() -> None:
    request = signed("HEAD", key="")
    checked(request)
    checked(request._replace(raw_path="/bucket"))


def test_the_bucket_may_be_named_by_the_host() -> None:
    checked(signed()._replace(raw_path="/a/b", virtual_bucket="bucket"))
    checked(signed(key="")._replace(raw_path="/", virtual_bucket="bucket"))
    for bucket in ("", "other", "bucket/a"):
        with pytest.raises(errors.SignatureDoesNotMatch):
            checked(signed()._replace(raw_path="/a/b", virtual_bucket=bucket))


@pytest.mark.parametrize("name", sorted(SIGNED_PARAMETERS))
@pytest.mark.parametrize("form", ["{}", "{}=", "%{:02x}{}"])
def test_a_sub_resource_that_was_not_signed_is_noticed(name: str, form: str) -> None:
    added = form.format(ord(name[0]), name[1:]) if "x}" in form else form.format(name)
    request = signed()
    for text in (f"{added}&{request.raw_query}", f"{request.raw_query}&{added}"):
        with pytest.raises(errors.SignatureDoesNotMatch):
            checked(request._replace(raw_query=text))


@pytest.mark.parametrize(
    "added",
    [
        "prefix=a", "list-type=2", "encryption", "attributes", "append", "renameObject", "retention", "legal-hold",
        "x", "=", "Acl", "awsaccesskeyid=x", "X-Amz-Date=20130524T000000Z", "X-Amz-Expires=60", "X-Amz-Meta-A=1",
        "x-Amz-meta-a=1", "x-amz-meta-a%3A=1", "x-amz-meta-a%0A=1", "x-amz-meta-%E2%84%AA=1",
    ],
)  # fmt: skip
def test_a_parameter_that_is_never_signed_is_refused(added: str) -> None:
    with pytest.raises(errors.AccessDeniedError, match="Version 2 does not sign"):
        checked(signed(query=added))


@pytest.mark.parametrize("name", ["AWSAccessKeyId", "Signature", "Expires", "%45xpires", "versionId", "X-AMZ-meta-a"])
def test_a_parameter_comes_once(name: str) -> None:
    request = signed(query="versionId=1", headers={"x-amz-meta-a": "1"})
    added = name.replace("X-AMZ", "x-amz").replace("meta", "META")
    with pytest.raises(errors.InvalidArgumentError, match="more than once"):
        checked(request._replace(raw_query=f"{request.raw_query}&{added}=1"))


@pytest.mark.parametrize("added", ["x-amz-meta-a=1%0Ax-amz-meta-b:2", "versionId=1%00", "content-type=a%0D"])
def test_a_line_end_cannot_make_two_things_of_one(added: str) -> None:
    request = signed("PUT")
    with pytest.raises(errors.InvalidArgumentError, match="control character"):
        checked(request._replace(raw_query=f"{request.raw_query}&{added}"))


@pytest.mark.parametrize("added", ["X-Amz-Algorithm=AWS4-HMAC-SHA256", "X-Amz-Signature=0", "X-Amz-Credential=a"])
def test_two_versions_are_not_mixed(added: str) -> None:
    request = signed()
    with pytest.raises(errors.InvalidArgumentError, match="Only one auth mechanism"):
        checked(request._replace(raw_query=f"{request.raw_query}&{added}"))
    for header in ("AWS AKIA:x", amazon.GET_RANGE.request().headers["authorization"]):
        with pytest.raises(errors.InvalidArgumentError, match="Only one auth mechanism"):
            checked(request._replace(headers={"host": HOST, "authorization": header}))


def test_an_address_holds_until_it_expires() -> None:
    checked(signed(), NOW + 60)
    with pytest.raises(errors.AccessDeniedError, match="Request has expired") as caught:
        checked(signed(), NOW + 60.5)
    assert caught.value.extra == {"Expires": "2013-05-24T00:01:00Z", "ServerTime": "2013-05-24T00:01:00Z"}
    with pytest.raises(errors.SignatureDoesNotMatch):
        checked(changed(signed(), f"Expires={NOW + 60:.0f}", f"Expires={NOW + 61:.0f}"))
    checked(signed(expires=9_999_999_999 - int(NOW)))


@pytest.mark.parametrize("said", ["", "-1", "+99999999999", "1e12", "99999999999", "20130524T000000Z", "%D9%A1%D9%A2"])
def test_what_is_no_time_is_told_so(said: str) -> None:
    with pytest.raises(errors.AccessDeniedError, match="Invalid date"):
        checked(changed(signed(), f"Expires={NOW + 60:.0f}", f"Expires={said}"))


def test_an_address_without_a_time_is_refused() -> None:
    with pytest.raises(errors.AccessDeniedError, match="requires the Signature, Expires and AWSAccessKeyId"):
        checked(changed(signed(), f"&Expires={NOW + 60:.0f}", ""))


def test_another_method_key_secret_or_signature_is_refused() -> None:
    request = signed()
    for each in (
        request._replace(method="PUT"),
        request._replace(method="HEAD"),
        request._replace(raw_path="/bucket/a/c"),
        request._replace(raw_path="/bucket/a%2Fb"),
        signed(secret="wrong"),
        changed(request, "Signature=", "Signature=x"),
        changed(request, "Signature=", "Signature=%C3%A9"),
    ):
        with pytest.raises(errors.SignatureDoesNotMatch) as caught:
            checked(each)
        assert caught.value.extra["StringToSign"].startswith(f"{each.method}\n\n\n{NOW + 60:.0f}\n/bucket/")
        assert SECRET_KEY not in str(caught.value.extra)
    with pytest.raises(errors.InvalidAccessKeyId):
        checked(changed(request, ACCESS_KEY, "NOBODY"))


def test_session_tokens_are_refused() -> None:
    with pytest.raises(errors.InvalidToken):
        checked(signed(headers={"x-amz-security-token": "t"}, token="t"))
    with pytest.raises(errors.InvalidToken):
        checked(signed()._replace(headers={"host": HOST, "x-amz-security-token": "t"}))


def test_a_hash_that_was_signed_holds_for_the_body_and_signed_chunks_are_refused() -> None:
    found = checked(signed("PUT", headers={"x-amz-content-sha256": amazon.WELCOME_SHA256}))
    assert (found.payload, found.sha256) == (PayloadKind.SIGNED, amazon.WELCOME_SHA256)
    for kind in (PayloadKind.STREAMING, PayloadKind.STREAMING_TRAILER, PayloadKind.STREAMING_UNSIGNED_TRAILER):
        with pytest.raises(errors.InvalidRequest):
            checked(signed("PUT", headers={"x-amz-content-sha256": kind.value}))


@pytest.mark.parametrize(
    ("legitimate", "forged"),
    [
        ("response-content-type=a&versionId=b", "response-content-type=a%26versionId=b"),
        ("acl&response-expires=1&tagging", "acl&response-expires=1%26tagging"),
        ("partNumber=1&uploadId=a", "partNumber=1%26uploadId=a"),
    ],
)
def test_a_value_that_reads_like_two_parameters_is_refused(legitimate: str, forged: str) -> None:
    request = signed(query=legitimate)
    checked(request)
    kept = request.raw_query.partition("AWSAccessKeyId")[2]
    swapped = request._replace(raw_query=f"{forged}&AWSAccessKeyId{kept}")
    with pytest.raises(errors.InvalidArgumentError, match="reads like a further parameter"):
        checked(swapped)


def test_a_value_with_an_ampersand_that_can_only_be_part_of_it_holds() -> None:
    checked(signed(query="response-content-disposition=" + quote('attachment; filename="R&D & a&b=c.txt"', safe="")))
