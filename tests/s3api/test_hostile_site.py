"""The same as test_hostile, down to a real site: what reaches the front desk from a client is answered too."""

from __future__ import annotations

import http.client
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.identity.canonical import encode as uri_encode
from s3api.operations import ROUTE_ROWS
from tests.endpoint import Endpoint
from tests.s3api.client import Reply, Signer
from tests.s3api.test_hostile import HEADERS, VALUES, XML, check


class Client:
    """A blocking client of the running endpoint."""

    def __init__(self, endpoint: Endpoint) -> None:
        at = urlsplit(endpoint.url)
        self.port = at.port
        self.signer = Signer(self, endpoint.access_key, endpoint.secret_key)

    def request(self, method: str, path: str, query: str = "", body: bytes = b"", **headers: str) -> Reply:
        head = self.signer.head(method, path, query, body, **headers).decode()
        lines = [line.split(": ", 1) for line in head.split("\r\n")[1:] if line]
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.putrequest(method, f"{path}?{query}" if query else path, skip_host=True, skip_accept_encoding=True)
        for name, value in lines:
            connection.putheader(name, value.encode())
        connection.endheaders(body)
        answer = connection.getresponse()
        reply = Reply(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        connection.close()
        return reply


@pytest.fixture(scope="module")
def client(endpoint: Endpoint) -> Client:
    made = Client(endpoint)
    assert made.request("PUT", "/hostile").status in (200, 409)
    versioned = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"
    assert made.request("PUT", "/hostile", "versioning=", versioned).status == 200
    return made


ROW = st.sampled_from([row for row in ROUTE_ROWS if row.operation not in ("DeleteBucket", "PostObject")])
KEYS = st.one_of(st.binary(min_size=1, max_size=20), st.sampled_from([b"a", b"a/", b"a//b", b"x" * 1025, b"\x00"]))
IDS = st.one_of(VALUES, st.from_regex(r"[0-9a-f]{16}", fullmatch=True), st.sampled_from(["null", "0" * 16, "f" * 16]))
EXTRA = ("prefix", "delimiter", "marker", "max-keys", "start-after", "key-marker", "version-id-marker", "versionId",
         "upload-id-marker", "part-number-marker", "encoding-type", "continuation-token")  # fmt: skip


@settings(max_examples=300)
@given(
    ROW,
    KEYS,
    st.dictionaries(st.sampled_from(EXTRA), IDS, max_size=3),
    st.dictionaries(st.sampled_from([name for name in HEADERS if name != "expect"]), VALUES, max_size=2),
    XML,
    IDS,
)
def test_no_request_finds_a_mistake_behind_the_door(client, row, key, extra, headers, body, text):
    path = "/hostile" if row.scope == "bucket" else f"/hostile/{uri_encode(key)}" if row.scope == "object" else "/"
    query = {name: value or text for name, _, value in (each.partition("=") for each in row.query)}
    if "partNumber" in query:
        query["partNumber"] = "1"
    raw_query = "&".join(f"{uri_encode(name)}={uri_encode(value)}" for name, value in {**extra, **query}.items())
    named = dict(headers)
    if row.header:
        named[row.header] = f"hostile/{uri_encode(key)}"
    if row.method in ("GET", "HEAD", "DELETE"):
        body = b""
    check(client.request(row.method, path, raw_query, body, **named), row.method)
