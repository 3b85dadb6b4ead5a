"""Signature Version 4: AWS's own examples are accepted, and each single deviation from them is refused."""

import re
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.identity import signature_errors as errors
from gateway.identity.sigv4 import PayloadKind, SignedRequest, VerifiedRequest, is_anonymous, verify
from tests.identity import amazon
from tests.identity.amazon import ACCESS_KEY, DATE, NOW, PRESIGNED, REGION, SCOPE, Example

EXAMPLES = {
    "get a range": amazon.GET_RANGE,
    "put": amazon.PUT_OBJECT,
    "lifecycle": amazon.GET_LIFECYCLE,
    "list": amazon.LIST_OBJECTS,
    "chunked": amazon.CHUNKED,
    "trailer": amazon.TRAILER,
}
EACH_EXAMPLE = pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES.keys())


def checked(request: SignedRequest, now: float = NOW, region: str = REGION) -> VerifiedRequest:
    return verify(request, amazon.secret_of, now, region)


def with_header(request: SignedRequest, name: str, value: str | None) -> SignedRequest:
    headers = {**request.headers, name: value or ""}
    if value is None:
        del headers[name]
    return request._replace(headers=headers)


def authorization(old: str, new: str) -> SignedRequest:
    request = amazon.GET_RANGE.request()
    changed = request.headers["authorization"].replace(old, new)
    assert changed != request.headers["authorization"]
    return with_header(request, "authorization", changed)


def query(old: str, new: str) -> SignedRequest:
    changed = PRESIGNED.raw_query.replace(old, new)
    assert changed != PRESIGNED.raw_query
    return PRESIGNED._replace(raw_query=changed)


@EACH_EXAMPLE
def test_amazons_examples_hold(example: Example) -> None:
    found = checked(example.request())
    assert (found.access_key, found.scope, found.amz_date) == (ACCESS_KEY, SCOPE, DATE)
    assert found.signature == example.signature
    assert not found.presigned


def test_amazons_presigned_example_holds() -> None:
    found = checked(PRESIGNED)
    assert found.payload is PayloadKind.UNSIGNED
    assert found.presigned


def test_the_kind_of_payload_is_what_the_request_says() -> None:
    kinds = [(example.request(), checked(example.request())) for example in EXAMPLES.values()]
    assert [found.payload.name for _, found in kinds] == ["SIGNED"] * 4 + ["STREAMING", "STREAMING_TRAILER"]
    assert checked(amazon.PUT_OBJECT.request()).sha256 == amazon.WELCOME_SHA256
    assert checked(amazon.CHUNKED.request()).sha256 == ""


@EACH_EXAMPLE
def test_a_request_changed_in_one_thing_is_refused_and_told_what_was_signed_here(example: Example) -> None:
    request = example.request()
    flipped = ("0" if example.signature[0] != "0" else "1") + example.signature[1:]
    changed = [
        request._replace(method="POST"),
        request._replace(raw_path=request.raw_path + "x"),
        request._replace(raw_path="/" + request.raw_path),
        request._replace(raw_query=request.raw_query + "&a=b"),
        with_header(request, "host", "other.example.com"),
        example.request(flipped),
    ]
    for each in changed:
        with pytest.raises(errors.SignatureDoesNotMatch) as caught:
            checked(each)
        assert caught.value.extra["CanonicalRequest"].startswith(f"{each.method}\n")
        assert caught.value.extra["StringToSign"].startswith(f"AWS4-HMAC-SHA256\n{DATE}\n{SCOPE}\n")
        assert amazon.SECRET_KEY not in str(caught.value.extra)


@pytest.mark.parametrize("name", ["range", "x-amz-date", "x-amz-content-sha256"])
def test_a_signed_header_that_changed_or_went_is_noticed(name: str) -> None:
    request = amazon.GET_RANGE.request()
    later = {"range": "bytes=0-10", "x-amz-date": "20130524T000001Z", "x-amz-content-sha256": "UNSIGNED-PAYLOAD"}
    with pytest.raises(errors.SignatureDoesNotMatch):
        checked(with_header(request, name, later[name]))
    with pytest.raises(errors.SignatureError):
        checked(with_header(request, name, None))


@pytest.mark.parametrize(
    ("path", "holds"),
    [
        ("/test%24file.text", True),
        ("/test$file.text", True),
        ("/%74est%24file%2Etext", True),
        ("/test%2524file.text", False),
        ("/test%24file%2ftext", False),
        ("/./test%24file.text", False),
        ("//test%24file.text", False),
    ],
)
def test_a_path_is_encoded_once_and_never_normalised(path: str, holds: bool) -> None:
    request = amazon.PUT_OBJECT.request()._replace(raw_path=path)
    if holds:
        checked(request)
    else:
        with pytest.raises(errors.SignatureDoesNotMatch):
            checked(request)


@pytest.mark.parametrize("text", ["prefix=J&max-keys=2", "max-keys=%32&prefix=%4a", "&max-keys=2&&prefix=J"])
def test_a_query_in_another_order_or_spelling_is_the_same_query(text: str) -> None:
    checked(amazon.LIST_OBJECTS.request()._replace(raw_query=text))
    with pytest.raises(errors.SignatureDoesNotMatch):
        checked(amazon.LIST_OBJECTS.request()._replace(raw_query=text.replace("J", "j").replace("%4a", "%6a")))


@pytest.mark.parametrize("seconds", [-900, -1, 0, 1, 900])
def test_a_clock_may_be_a_quarter_of_an_hour_off(seconds: int) -> None:
    checked(amazon.GET_RANGE.request(), NOW + seconds)


@pytest.mark.parametrize("seconds", [-901, 901, 86_400, -86_400])
def test_a_clock_may_not_be_further_off(seconds: int) -> None:
    with pytest.raises(errors.RequestTimeTooSkewed) as caught:
        checked(amazon.GET_RANGE.request(), NOW + seconds)
    assert caught.value.extra["RequestTime"] == DATE
    assert caught.value.extra["MaxAllowedSkewMilliseconds"] == "900000"


def test_a_date_header_serves_where_there_is_no_x_amz_date() -> None:
    from gateway.identity import canonical

    for date in ("Fri, 24 May 2013 00:00:00 GMT", DATE):
        headers = {"host": amazon.HOST, "date": date, "x-amz-content-sha256": "UNSIGNED-PAYLOAD"}
        signed = sorted(headers)
        asked = canonical.canonical_request(
            "GET", "/a", "", canonical.canonical_headers(headers, signed), ";".join(signed), "UNSIGNED-PAYLOAD"
        )
        key = canonical.signing_key(amazon.SECRET_KEY, DATE[:8], REGION, "s3")
        signature = canonical.sign(key, canonical.string_to_sign(DATE, SCOPE, asked))
        headers["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/{SCOPE}, SignedHeaders={';'.join(signed)}, Signature={signature}"
        )
        checked(SignedRequest("GET", "/a", "", headers))
        for wrong in (None, "yesterday", ""):
            with pytest.raises(errors.AccessDeniedError, match="valid Date"):
                checked(with_header(SignedRequest("GET", "/a", "", headers), "date", wrong))


def test_a_wrong_region_is_told_the_right_one() -> None:
    with pytest.raises(errors.AuthorizationHeaderMalformed, match="expecting 'eu-west-1'") as caught:
        checked(amazon.GET_RANGE.request(), region="eu-west-1")
    assert caught.value.extra == {"Region": "eu-west-1"}
    with pytest.raises(errors.AuthorizationQueryParametersError, match="expecting 'eu-west-1'"):
        checked(PRESIGNED, region="eu-west-1")


@pytest.mark.parametrize(
    ("old", "new", "error", "said"),
    [
        ("/s3/", "/iam/", errors.AuthorizationHeaderMalformed, 'incorrect service "iam"'),
        ("aws4_request", "aws5_request", errors.AuthorizationHeaderMalformed, "Credential is mal-formed"),
        (f"{ACCESS_KEY}/", "", errors.AuthorizationHeaderMalformed, "Credential is mal-formed"),
        (ACCESS_KEY, "", errors.AuthorizationHeaderMalformed, "Credential is mal-formed"),
        ("/20130524/", "/20130525/", errors.AuthorizationHeaderMalformed, 'incorrect date "20130525"'),
        (ACCESS_KEY, "AKIANOBODY", errors.InvalidAccessKeyId, "does not exist"),
        (ACCESS_KEY, "A\udcffB", errors.InvalidAccessKeyId, "does not exist"),
        ("host;range", "range;host", errors.AuthorizationHeaderMalformed, "sorted list"),
        ("host;range", "host;host;range", errors.AuthorizationHeaderMalformed, "sorted list"),
        ("host;range", "Host;range", errors.AuthorizationHeaderMalformed, "sorted list"),
        ("host;range", "range", errors.AccessDeniedError, "not signed"),
        (";x-amz-date", "", errors.AccessDeniedError, "not signed"),
        ("Signature=f0", "Signature=F0", errors.AuthorizationHeaderMalformed, "64 lower-case"),
        ("Signature=f0", "Signature=", errors.AuthorizationHeaderMalformed, "64 lower-case"),
        (",Signature", ",Signature=1,Signature", errors.AuthorizationHeaderMalformed, "malformed"),
        ("SignedHeaders=", "Headers=", errors.AuthorizationHeaderMalformed, "exactly Credential"),
        ("Credential=", "Credential", errors.AuthorizationHeaderMalformed, "malformed"),
        ("AWS4-HMAC-SHA256", "Bearer", errors.InvalidArgumentError, "Unsupported Authorization Type"),
        ("AWS4-HMAC-SHA256", "AWS4-ECDSA-P256-SHA256", errors.InvalidArgumentError, "Unsupported Authorization Type"),
        ("AWS4-HMAC-SHA256 ", "AWS ", errors.InvalidRequest, "Please use AWS4-HMAC-SHA256"),
    ],
)
def test_a_header_that_says_nonsense_is_told_so(
    old: str, new: str, error: type[errors.SignatureError], said: str
) -> None:
    with pytest.raises(error, match=re.escape(said)):
        checked(authorization(old, new))


@pytest.mark.parametrize(
    ("name", "value", "error", "said"),
    [
        ("x-amz-content-sha256", None, errors.InvalidRequest, "x-amz-content-sha256"),
        ("x-amz-content-sha256", "abc", errors.InvalidArgumentError, "valid sha256"),
        ("x-amz-content-sha256", "STREAMING-WHATEVER", errors.InvalidArgumentError, "valid sha256"),
        ("x-amz-meta-late", "1", errors.AccessDeniedError, "not signed"),
        ("x-amz-date", "2013-05-24", errors.AccessDeniedError, "valid Date"),
        ("x-amz-date", "20130524T250000Z", errors.AuthorizationHeaderMalformed, "is not valid"),
        ("x-amz-date", "٢٠١٣٠٥٢٤T000000Z", errors.AccessDeniedError, "valid Date"),
    ],
)
def test_headers_that_do_not_fit_are_told_so(
    name: str, value: str | None, error: type[errors.SignatureError], said: str
) -> None:
    with pytest.raises(error, match=said):
        checked(with_header(amazon.GET_RANGE.request(), name, value))


def test_a_session_token_is_one_that_we_never_gave() -> None:
    request = authorization("x-amz-date", "x-amz-date;x-amz-security-token")
    with pytest.raises(errors.InvalidToken):
        checked(with_header(request, "x-amz-security-token", "FwoGZXIvYXdz"))
    with pytest.raises(errors.InvalidToken):
        checked(query("&X-Amz-SignedHeaders", "&X-Amz-Security-Token=abc&X-Amz-SignedHeaders"))


@pytest.mark.parametrize("seconds", [-900, 0, 86_399, 86_400])
def test_a_presigned_request_holds_until_it_expires(seconds: int) -> None:
    checked(PRESIGNED, NOW + seconds)


@pytest.mark.parametrize(
    ("seconds", "said"), [(-901, "not valid yet"), (86_401, "has expired"), (604_801, "has expired")]
)
def test_a_presigned_request_is_refused_before_and_behind_its_time(seconds: int, said: str) -> None:
    with pytest.raises(errors.AccessDeniedError, match=said) as caught:
        checked(PRESIGNED, NOW + seconds)
    if seconds > 0:
        assert caught.value.extra["Expires"] == "2013-05-25T00:00:00Z"


@pytest.mark.parametrize(
    ("old", "new", "error", "said"),
    [
        ("Expires=86400", "Expires=0", errors.AuthorizationQueryParametersError, "at least 1"),
        ("Expires=86400", "Expires=604801", errors.AuthorizationQueryParametersError, "less than a week"),
        ("Expires=86400", "Expires=-1", errors.AuthorizationQueryParametersError, "should be a number"),
        ("Expires=86400", "Expires=", errors.AuthorizationQueryParametersError, "should be a number"),
        ("Expires=86400", "Expires=9e99", errors.AuthorizationQueryParametersError, "should be a number"),
        ("Expires=86400", "Expires=" + "9" * 5000, errors.AuthorizationQueryParametersError, "should be a number"),
        ("Expires=86400", "Expires=604800", errors.SignatureDoesNotMatch, "does not match"),
        ("X-Amz-Expires=86400&", "", errors.AuthorizationQueryParametersError, "X-Amz-Expires is missing"),
        ("X-Amz-Date", "X-Amz-Day", errors.AuthorizationQueryParametersError, "X-Amz-Date is missing"),
        ("&X-Amz-Date", "&X-Amz-Date=1&X-Amz-Date", errors.AuthorizationQueryParametersError, "more than once"),
        ("HMAC-SHA256", "HMAC-SHA1", errors.AuthorizationQueryParametersError, "only supports"),
        ("Headers=host", "Headers=", errors.AuthorizationQueryParametersError, "sorted list"),
        ("Headers=host", "Headers=range", errors.AccessDeniedError, "not signed"),
        (ACCESS_KEY, "AKIANOBODY", errors.InvalidAccessKeyId, "does not exist"),
        ("&X-Amz-Signature", "&more=1&X-Amz-Signature", errors.SignatureDoesNotMatch, "does not match"),
    ],
)
def test_a_presigned_query_that_does_not_fit_is_told_so(
    old: str, new: str, error: type[errors.SignatureError], said: str
) -> None:
    with pytest.raises(error, match=said):
        checked(query(old, new))


def test_a_presigned_request_may_not_bring_x_amz_headers_that_were_not_signed() -> None:
    with pytest.raises(errors.AccessDeniedError, match="not signed"):
        checked(with_header(PRESIGNED, "x-amz-acl", "public-read"))


def test_one_request_is_signed_in_one_way() -> None:
    both = with_header(PRESIGNED, "authorization", amazon.GET_RANGE.request().headers["authorization"])
    with pytest.raises(errors.InvalidArgumentError, match="Only one auth mechanism"):
        checked(both)


def test_version_2_in_the_header_is_told_to_use_version_4() -> None:
    old = SignedRequest("GET", "/a", "", {"host": "h", "authorization": "AWS AKIA:c2lnbmF0dXJl"})
    assert not is_anonymous(old)
    with pytest.raises(errors.InvalidRequest, match="Please use AWS4-HMAC-SHA256"):
        checked(old)


@pytest.mark.parametrize("text", ["", "prefix=X-Amz-Signature", "list-type=2&marker=Signature="])
def test_a_request_without_a_signature_is_anonymous(text: str) -> None:
    request = SignedRequest("GET", "/a", text, {"host": "h"})
    assert is_anonymous(request)
    with pytest.raises(errors.AccessDeniedError):
        checked(request)


def test_nothing_secret_is_printed() -> None:
    found = checked(PRESIGNED)
    assert repr(found.signing_key) not in repr(found)


def test_every_error_has_a_code_of_s3s() -> None:
    from s3api.codes import CODES

    for error in errors.SignatureError.__subclasses__():
        assert error.code in CODES, error.__name__


WIRE = st.binary(max_size=60).map(lambda raw: raw.decode("utf-8", "surrogateescape"))
PIECES = st.sampled_from(
    [
        "AWS4-HMAC-SHA256 ", "Credential=", "SignedHeaders=", "Signature=", ",", "/", ";", "=", "&", "%", "+", " ",
        "host", "x-amz-date", ACCESS_KEY, SCOPE, DATE, "X-Amz-Algorithm=AWS4-HMAC-SHA256", "X-Amz-Credential=",
        "X-Amz-Date=", "X-Amz-Expires=", "X-Amz-SignedHeaders=host", "X-Amz-Signature=", "0" * 64, "99999999T999999Z",
        "AWSAccessKeyId=", "-1", "Fri, 24 May 2013 00:00:00 GMT", "UNSIGNED-PAYLOAD",
    ]
)  # fmt: skip
HOSTILE = st.lists(st.one_of(PIECES, WIRE), max_size=14).map("".join)
NAMES = st.sampled_from(
    ["authorization", "host", "date", "x-amz-date", "x-amz-content-sha256", "x-amz-security-token", "x-amz-\udcff"]
)


@given(method=WIRE, path=HOSTILE, text=HOSTILE, headers=st.dictionaries(NAMES, HOSTILE))
def test_whatever_comes_is_answered_with_an_error_of_the_tree(
    method: str, path: str, text: str, headers: Mapping[str, str]
) -> None:
    with pytest.raises(errors.SignatureError) as caught:
        checked(SignedRequest(method, path, text, headers))
    said(caught.value)


def said(error: errors.SignatureError) -> bytes:
    """What a client is told: text that can be sent."""
    return (str(error) + "".join(error.extra.values())).encode()


FIELDS = {"Credential": f"{ACCESS_KEY}/{SCOPE}", "SignedHeaders": "host", "Signature": "0" * 64}


@given(data=st.data(), in_query=st.booleans())
def test_a_form_with_one_hostile_field_is_answered_with_an_error_of_the_tree(
    data: st.DataObject, in_query: bool
) -> None:
    fields = dict(FIELDS)
    if in_query:
        fields |= {"Algorithm": "AWS4-HMAC-SHA256", "Date": DATE, "Expires": "60"}
    fields[data.draw(st.sampled_from(sorted(fields)))] = data.draw(HOSTILE)
    hostile = data.draw(HOSTILE)
    if in_query:
        text = "&".join(f"X-Amz-{name}={value}" for name, value in fields.items())
        request = SignedRequest("GET", hostile, text, {"host": hostile})
    else:
        header = "AWS4-HMAC-SHA256 " + ",".join(f"{name}={value}" for name, value in fields.items())
        date = data.draw(st.one_of(st.just(DATE), HOSTILE))
        headers = {"authorization": header, "host": hostile, "date": date, "x-amz-content-sha256": "UNSIGNED-PAYLOAD"}
        request = SignedRequest("GET", hostile, hostile, headers)
    with pytest.raises(errors.SignatureError) as caught:
        checked(request)
    said(caught.value)
