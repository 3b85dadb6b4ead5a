"""Pages of other origins may use a bucket as its CORS rules say: preflight requests, and headers on every response."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from s3api.errors import S3Error
from s3api.format.cors import HEADER_PATTERNS_MAX, CorsRule, find_rule, parse_rules, rules_xml, stored_rules
from s3api.format.xml_reader import parse_xml
from tests.s3api.client import Signer, failed
from tests.s3api.conftest import Site

RULE = {
    "ID": "web",
    "AllowedOrigins": ["https://*.example.org"],
    "AllowedMethods": ["GET", "PUT"],
    "AllowedHeaders": ["x-amz-*", "Content-Type"],
    "ExposeHeaders": ["ETag"],
    "MaxAgeSeconds": 600,
}
PAGE = "https://app.example.org"


@pytest.fixture
async def ruled(site: Site, s3: Any) -> Site:
    """A site whose bucket `bucket` has one rule."""
    await site.call(s3.put_bucket_cors, Bucket="bucket", CORSConfiguration={"CORSRules": [RULE]})
    return site


async def ask(site: Site, method: str, target: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    """Send a request without a signature."""
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    writer.write(f"{method} {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{lines}\r\n".encode())
    raw = await reader.read()
    writer.close()
    head, _, body = raw.partition(b"\r\n\r\n")
    status, *rest = head.decode().split("\r\n")
    return int(status.split()[1]), {n.lower(): v for n, v in (line.split(": ", 1) for line in rest)}, body


async def preflight(site: Site, origin: str = PAGE, method: str = "PUT", target: str = "/bucket/k", **more: str) -> Any:
    return await ask(site, "OPTIONS", target, Origin=origin, Access_Control_Request_Method=method, **more)


async def test_rules_are_returned_as_they_were_stored_and_can_be_removed(ruled: Site, s3: Any) -> None:
    assert (await ruled.call(s3.get_bucket_cors, Bucket="bucket"))["CORSRules"] == [RULE]
    await ruled.call(s3.delete_bucket_cors, Bucket="bucket")
    with pytest.raises(ClientError) as caught:
        await ruled.call(s3.get_bucket_cors, Bucket="bucket")
    assert failed(caught) == "NoSuchCORSConfiguration"
    assert (await preflight(ruled))[0] == 403


async def test_a_preflight_request_that_a_rule_allows_is_answered_without_a_signature(ruled: Site) -> None:
    for target in ("/bucket/k", "/bucket/k?uploads&partNumber=1", "/bucket"):
        status, headers, body = await preflight(
            ruled, target=target, Access_Control_Request_Headers="x-amz-date, Content-Type"
        )
        assert (status, body) == (200, b"")
        assert headers["access-control-allow-origin"] == PAGE
        assert headers["access-control-allow-methods"] == "GET, PUT"
        assert headers["access-control-allow-headers"] == "x-amz-date, content-type"
        assert headers["access-control-expose-headers"] == "ETag"
        assert headers["access-control-max-age"] == "600"
        assert headers["access-control-allow-credentials"] == "true"
        assert "Origin" in headers["vary"]


@pytest.mark.parametrize(
    ("changes", "status", "message"),
    [
        ({"origin": "https://example.com"}, 403, b"CORSResponse: This CORS request is not allowed."),
        ({"method": "DELETE"}, 403, b"CORSResponse: This CORS request is not allowed."),
        ({"Access_Control_Request_Headers": "authorization"}, 403, b"CORSResponse: This CORS request"),
        ({"target": "/nowhere/k"}, 403, b"CORSResponse: CORS is not enabled for this bucket."),
        ({"method": "PATCH"}, 400, b"Invalid Access-Control-Request-Method: PATCH"),
        ({"origin": ""}, 400, b"Origin request header needed"),
        ({"Access_Control_Request_Headers": "a b"}, 400, b"Invalid Access-Control-Request-Headers"),
        ({"Access_Control_Request_Headers": "a," * 51}, 400, b"Invalid Access-Control-Request-Headers"),
    ],
)
async def test_other_preflight_requests_are_refused(
    ruled: Site, changes: dict[str, str], status: int, message: bytes
) -> None:
    found, headers, body = await preflight(ruled, **changes)
    assert found == status
    assert message in body
    assert "access-control-allow-origin" not in headers


async def test_responses_of_any_status_carry_the_lines_that_let_a_page_read_them(ruled: Site, signer: Signer) -> None:
    await ruled.store(b"k", b"data")
    for target, status in (("/bucket/k", 200), ("/bucket/missing", 404)):
        reply = await signer.request("GET", target, origin=PAGE)
        assert reply.status == status
        assert reply.headers["access-control-allow-origin"] == PAGE
    denied, headers, _ = await ask(ruled, "GET", "/bucket/k", Origin=PAGE)
    assert (denied, headers["access-control-allow-origin"]) == (403, PAGE)
    for origin, method in (("https://other.test", "GET"), (PAGE, "DELETE")):
        reply = await signer.request(method, "/bucket/missing", origin=origin)
        assert "access-control-allow-origin" not in reply.headers
    assert "vary" not in (await signer.request("GET", "/bucket/k")).headers, "no origin, no lines"


async def test_a_rule_for_everybody_names_no_origin_and_allows_no_credentials(site: Site, s3: Any) -> None:
    rules = {"CORSRules": [{"AllowedOrigins": ["*"], "AllowedMethods": ["GET"]}]}
    await site.call(s3.put_bucket_cors, Bucket="bucket", CORSConfiguration=rules)
    _, headers, _ = await preflight(site, method="GET")
    assert headers["access-control-allow-origin"] == "*"
    assert "access-control-allow-credentials" not in headers


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"AllowedMethods": ["PATCH"]}, "InvalidRequest"),
        ({"AllowedOrigins": ["https://*.*"]}, "InvalidRequest"),
        ({"AllowedHeaders": ["*-*"]}, "InvalidRequest"),
        ({"ExposeHeaders": ["x-*"]}, "InvalidRequest"),
        ({"AllowedOrigins": ["https://a\r\nSet-Cookie: x"]}, "MalformedXML"),
        ({"AllowedOrigins": []}, "MalformedXML"),
        ({"MaxAgeSeconds": -1}, "MalformedXML"),
        ({"ID": "x" * 256}, "InvalidArgument"),
    ],
)
async def test_rules_that_are_not_valid_are_refused(site: Site, s3: Any, changes: dict[str, Any], code: str) -> None:
    with pytest.raises(ClientError) as caught:
        await site.call(s3.put_bucket_cors, Bucket="bucket", CORSConfiguration={"CORSRules": [RULE | changes]})
    assert failed(caught) == code


async def test_more_wildcards_in_headers_than_can_be_compared_quickly_are_refused(site: Site, s3: Any) -> None:
    rule = RULE | {"AllowedHeaders": [f"x-{number}-*" for number in range(HEADER_PATTERNS_MAX // 2 + 1)]}
    with pytest.raises(ClientError) as caught:
        await site.call(s3.put_bucket_cors, Bucket="bucket", CORSConfiguration={"CORSRules": [rule, rule]})
    assert failed(caught) == "InvalidRequest"


async def test_more_than_a_hundred_rules_are_refused(site: Site, s3: Any) -> None:
    with pytest.raises(ClientError) as caught:
        await site.call(s3.put_bucket_cors, Bucket="bucket", CORSConfiguration={"CORSRules": [RULE] * 101})
    assert failed(caught) == "MalformedXML"


words = st.text("abz*.:/-", min_size=1, max_size=6)


@given(st.lists(st.tuples(words, words), min_size=1, max_size=4), words, words)
def test_a_star_stands_for_any_text_once(rules: list[tuple[str, str]], origin: str, header: str) -> None:
    made = [CorsRule("", (o,), ("GET",), (h,), (), None) for o, h in rules if o.count("*") < 2 and h.count("*") < 2]

    def naive(pattern: str, text: str) -> bool:
        if "*" not in pattern:
            return pattern == text
        star = pattern.index("*")
        return any(pattern[:star] + text[star:end] + pattern[star + 1 :] == text for end in range(star, len(text) + 1))

    expected = next((r for r in made if naive(r.origins[0], origin) and naive(r.headers[0], header)), None)
    assert find_rule(made, origin, "GET", [header]) == expected


@given(
    st.lists(
        st.builds(
            CorsRule,
            st.text("ab &<", max_size=5).map(str.strip),
            st.lists(st.text("ab./", min_size=1, max_size=5), min_size=1, max_size=3).map(tuple),
            st.lists(st.sampled_from(["GET", "PUT"]), min_size=1, max_size=2).map(tuple),
            st.lists(st.text("ab-", min_size=1, max_size=5), max_size=3).map(tuple),
            st.lists(st.text("ab-", min_size=1, max_size=5), max_size=3).map(tuple),
            st.none() | st.integers(0, 10**9),
        ),
        min_size=1,
        max_size=4,
    ).map(tuple)
)
def test_rules_survive_being_stored(rules: tuple[CorsRule, ...]) -> None:
    assert stored_rules(rules_xml(rules).encode()) == rules


def test_a_document_with_anything_else_is_malformed() -> None:
    for text in ("<CORSConfiguration/>", "<CORSConfiguration><Other/></CORSConfiguration>"):
        with pytest.raises(S3Error, match="MalformedXML"):
            parse_rules(parse_xml(text.encode(), "CORSConfiguration"))


# --- tags of buckets ------------------------------------------------------------------------------------------------


async def test_a_bucket_has_tags(site: Site, s3: Any) -> None:
    with pytest.raises(ClientError) as caught:
        await site.call(s3.get_bucket_tagging, Bucket="bucket")
    assert failed(caught) == "NoSuchTagSet"
    tags = [{"Key": f"name {number}", "Value": "a/b + c"} for number in range(50)]
    await site.call(s3.put_bucket_tagging, Bucket="bucket", Tagging={"TagSet": tags})
    assert (await site.call(s3.get_bucket_tagging, Bucket="bucket"))["TagSet"] == tags
    with pytest.raises(ClientError) as caught:
        await site.call(s3.put_bucket_tagging, Bucket="bucket", Tagging={"TagSet": [*tags, {"Key": "k", "Value": ""}]})
    assert failed(caught) == "BadRequest"
    await site.call(s3.delete_bucket_tagging, Bucket="bucket")
    with pytest.raises(ClientError) as caught:
        await site.call(s3.get_bucket_tagging, Bucket="bucket")
    assert failed(caught) == "NoSuchTagSet"
