"""What is signed is what is used: the host, repeated parameters, and headers that a presigned URL brings."""

from __future__ import annotations

import pytest

from s3api.errors import S3Error
from s3api.format.authority import destination, virtual_bucket
from tests.s3api.client import Signer, encode

A, B = "pub-a.s3.test", "secret-b.s3.test"


@pytest.fixture
async def public(site, signer):
    """Two buckets with the object `doc`, and a client that addresses the first by its host."""
    for bucket in ("pub-a", "secret-b"):
        assert (await signer.request("PUT", f"/{bucket}")).status == 200
        await site.store(b"doc", bucket.encode(), bucket)
    return Signer(site, host=A)


async def follow(client, target, *hosts, method="GET", body=b"", version="1.1"):
    """The answer to a presigned *target* that is sent with these Host headers."""
    lines = "".join(f"Host: {host}\r\n" for host in hosts)
    length = f"Content-Length: {len(body)}\r\n" if body else ""
    return await client.send(f"{method} {target} HTTP/{version}\r\n{lines}{length}\r\n".encode() + body, method)


# --- the host ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "elsewhere",
    [f"http://{B}", f"HTTP://{B}", f"http://{B}:80", f"http://{B}.", f"http://{A}@{B}", f"http://{B}#@{A}", "http://s3.test/secret-b"],
)  # fmt: skip
@pytest.mark.parametrize("method", ["GET", "PUT"])
async def test_an_absolute_target_cannot_name_another_host_than_the_signed_one(site, public, elsewhere, method):
    target = elsewhere + public.presigned(method, "/doc")
    reply = await follow(public, target, A, method=method, body=b"overwritten" if method == "PUT" else b"")
    assert (reply.status, reply.code) == (400, "BadRequest")
    assert b"secret-b" not in reply.body.replace(b"/secret-b", b"").replace(B.encode(), b"")
    assert (await Signer(site).request("GET", "/secret-b/doc")).body == b"secret-b"


async def test_a_presigned_url_of_one_host_signs_nothing_on_another(site, public):
    target = public.presigned("GET", "/doc")
    for hosts in ((B,), (f"{A}:9000",), (f"{A}.",), ("s3.test",)):
        reply = await follow(public, target, *hosts)
        assert (reply.status, reply.code) == (403, "SignatureDoesNotMatch"), hosts
    # HTTP/1.0 without Host: the authority of the target is the one that must have been signed.
    reply = await follow(public, f"http://{B}{target}", version="1.0")
    assert (reply.status, reply.code) == (403, "SignatureDoesNotMatch")
    reply = await follow(public, target, version="1.0")
    assert (reply.status, reply.code) == (403, "AccessDenied")


async def test_a_target_that_names_the_signed_host_is_answered(public):
    target = public.presigned("GET", "/doc")
    for sent, hosts, version in (
        (target, (A,), "1.1"),
        (f"http://{A}{target}", (A,), "1.1"),
        (f"http://{A.upper()}{target}", (A,), "1.1"),
        (f"http://{A}{target}", (), "1.0"),
    ):
        assert (await follow(public, sent, *hosts, version=version)).body == b"pub-a", sent


@pytest.mark.parametrize("spelled", [f"{A}:9000", f"{A}:", f"{A}.", f"{A}.:80", A.upper()])
async def test_a_host_names_the_same_bucket_however_it_is_spelled(site, public, spelled):
    other = Signer(site, host=spelled)
    assert (await other.request("GET", "/doc")).body == b"pub-a"
    assert (await follow(other, other.presigned("GET", "/doc"), spelled)).body == b"pub-a"


@pytest.mark.parametrize(
    "hosts",
    [(), ("",), (A, A), (A, B), (f"{A},{B}",), (f"{B}/@{A}",), (f"x@{A}",), ("a b",), (f"{A}:port",), ("ä.s3.test",)],
)
async def test_a_request_without_one_valid_host_is_refused(public, hosts):
    reply = await follow(public, public.presigned("GET", "/doc"), *hosts)
    assert (reply.status, reply.code) == (400, "BadRequest")


async def test_headers_of_proxies_and_other_methods_change_nothing(site, public):
    reply = await public.follow(
        "GET", public.presigned("GET", "/doc"), x_forwarded_host=B, forwarded=f"host={B}",
        **{"x-forwarded-host": B, "x-host": B, "x-original-url": "/secret-b/doc", "x-rewrite-url": "/secret-b/doc",
           "x-http-method-override": "DELETE", "x-http-method": "DELETE", "x-method-override": "DELETE"},
    )  # fmt: skip
    assert reply.body == b"pub-a"
    assert await site.keys("pub-a") == [b"doc"]


def test_the_longest_base_domain_names_the_bucket_and_a_base_domain_itself_none():
    domains = ("test", "s3.test")
    for host, bucket in (
        ("photos.s3.test", "photos"), ("a.b.s3.test", "a.b"), ("s3.test", ""), ("test", ""), ("x.test:80", "x"),
        ("evils3.test.", "evils3"), ("[::1]:9000", ""), ("other.example", ""), (".s3.test", ""), ("", ""),
    ):  # fmt: skip
        assert virtual_bucket(host, domains) == virtual_bucket(host, domains[::-1]) == bucket, host


@pytest.mark.parametrize("host", ["127.0.0.1:9000", "[::1]", "[fe80::1%25eth0]:80", "a_b.example", "localhost"])
def test_hosts_that_clients_use_are_taken(host):
    assert destination("/b/k", host, (1, 1)) == (host, "/b/k")
    assert destination(f"http://{host}/b/k?x", host, (1, 1)) == (host, "/b/k?x")
    assert destination(f"http://{host}?x", None, (1, 0)) == (host, "/?x")


@pytest.mark.parametrize(
    "host", ["a" * 256, "[::1", "::1", "[x]", "a:123456", "a\x00", "%61.s3.test", "[::1%" + "a" * 400]
)
def test_hosts_that_are_none_are_refused(host):
    for raw, header in (("/b/k", host), (f"http://{host}/b", "a"), (f"http://{host}/b", None)):
        with pytest.raises(S3Error) as caught:
            destination(raw, header, (1, 0))
        assert caught.value.code == "BadRequest"


def test_only_http_1_0_may_leave_the_host_out():
    assert destination("/b", None, (1, 0)) == ("", "/b")
    for raw in ("/b", f"http://{A}/b"):
        with pytest.raises(S3Error):
            destination(raw, None, (1, 1))


# --- parameters and headers -------------------------------------------------------------------------------------------


async def test_a_parameter_that_comes_twice_is_refused_because_its_order_is_not_signed(signer):
    reply = await signer.request("GET", "/bucket", "list-type=2&prefix=a&prefix=b")
    assert (reply.status, reply.code) == (400, "InvalidArgument")
    reply = await signer.request("GET", "/bucket", "list-type=2&prefix=a&%70refix=a")
    assert (reply.status, reply.code, reply.xml("ArgumentName")) == (400, "InvalidArgument", "prefix")


async def test_a_presigned_header_has_one_spelling_and_one_value(site, signer):
    twice = signer.presigned("PUT", "/bucket/k", **{"x-amz-meta-a": "1", "x-amz-meta-A": "2"})
    reply = await signer.follow("PUT", twice, b"x")
    assert (reply.status, reply.code) == (400, "InvalidArgument")
    target = signer.presigned("PUT", "/bucket/k", **{"x-amz-acl": "private"})
    reply = await signer.follow("PUT", target, b"x", **{"x-amz-acl": "public-read"})
    assert (reply.status, reply.code) == (400, "InvalidArgument")
    assert await site.keys() == []


async def test_a_copy_source_whose_blanks_are_not_signed_is_refused(site, signer):
    await site.store(b"a b", b"one blank")
    await site.store(b"a  b", b"two blanks")
    for source in ("bucket/a  b", "bucket/a \tb"):
        reply = await signer.request("PUT", "/bucket/copy", x_amz_copy_source=source)
        assert (reply.status, reply.code) == (400, "InvalidArgument")
    assert (await signer.request("PUT", "/bucket/copy", x_amz_copy_source="bucket/a%20%20b")).status == 200
    assert (await signer.request("GET", "/bucket/copy")).body == b"two blanks"
    assert (await signer.request("PUT", "/bucket/k", body=b"x", x_amz_meta_a="1  2")).status == 200


async def test_a_signed_header_cannot_be_removed_although_it_is_empty(signer):
    signed = signer.signed("GET", "/bucket", **{"x-amz-expected-bucket-owner": ""})
    del signed["x-amz-expected-bucket-owner"]
    reply = await signer.send(encode("GET", "/bucket", signed))
    assert (reply.status, reply.code) == (403, "AccessDenied")


async def test_a_trailer_comes_once(site, signer):
    body = b"1\r\nx\r\n0\r\nx-amz-checksum-crc32:g9NX6A==\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n"
    reply = await signer.request(
        "PUT", "/bucket/k", "", body, "STREAMING-UNSIGNED-PAYLOAD-TRAILER", x_amz_decoded_content_length="1",
        x_amz_trailer="x-amz-checksum-crc32",
    )  # fmt: skip
    assert (reply.status, reply.code) == (400, "MalformedTrailerError")
    assert await site.keys() == []
