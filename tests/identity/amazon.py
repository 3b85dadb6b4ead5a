"""The examples that AWS publishes in the S3 API reference, "Authenticating requests (AWS Signature Version 4)"."""

from __future__ import annotations

from calendar import timegm
from typing import NamedTuple

from gateway.identity.canonical import EMPTY_SHA256
from gateway.identity.sigv4 import SignedRequest

ACCESS_KEY = "AKIAIOSFODNN7EXAMPLE"
SECRET_KEY = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
REGION = "us-east-1"
HOST = "examplebucket.s3.amazonaws.com"
DATE = "20130524T000000Z"
NOW = float(timegm((2013, 5, 24, 0, 0, 0)))
SCOPE = f"20130524/{REGION}/s3/aws4_request"
WELCOME_SHA256 = "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072"


def secret_of(access_key: str) -> str | None:
    return SECRET_KEY if access_key == ACCESS_KEY else None


class Example(NamedTuple):
    """One request in the header form; the headers are all signed."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    signature: str

    def request(self, signature: str = "") -> SignedRequest:
        signed = ";".join(sorted(self.headers))
        authorization = (
            f"AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/{SCOPE},SignedHeaders={signed},"
            f"Signature={signature or self.signature}"
        )
        headers = {**self.headers, "authorization": authorization, "user-agent": "not signed"}
        return SignedRequest(self.method, self.path, self.query, headers)


def _headers(sha256: str = EMPTY_SHA256, host: str = HOST, **more: str) -> dict[str, str]:
    return {
        "host": host,
        "x-amz-content-sha256": sha256,
        "x-amz-date": DATE,
        **{name.replace("_", "-"): value for name, value in more.items()},
    }


GET_RANGE = Example(
    "GET", "/test.txt", "", _headers(range="bytes=0-9"),
    "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
)  # fmt: skip
PUT_OBJECT = Example(
    "PUT",
    "/test%24file.text",
    "",
    _headers(WELCOME_SHA256, date="Fri, 24 May 2013 00:00:00 GMT", x_amz_storage_class="REDUCED_REDUNDANCY"),
    "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
)
GET_LIFECYCLE = Example(
    "GET", "/", "lifecycle", _headers(), "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"
)
LIST_OBJECTS = Example(
    "GET", "/", "max-keys=2&prefix=J", _headers(), "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"
)
_CHUNKED = {
    "content_encoding": "aws-chunked",
    "x_amz_decoded_content_length": "66560",
    "x_amz_storage_class": "REDUCED_REDUNDANCY",
}
CHUNKED = Example(
    "PUT",
    "/examplebucket/chunkObject.txt",
    "",
    _headers("STREAMING-AWS4-HMAC-SHA256-PAYLOAD", "s3.amazonaws.com", content_length="66824", **_CHUNKED),
    "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9",
)
TRAILER = Example(
    "PUT",
    "/examplebucket/chunkObject.txt",
    "",
    _headers(
        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER",
        "s3.amazonaws.com",
        x_amz_trailer="x-amz-checksum-crc32c",
        **_CHUNKED,
    ),
    "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e",
)
PRESIGNED = SignedRequest(
    "GET",
    "/test.txt",
    "X-Amz-Algorithm=AWS4-HMAC-SHA256"
    f"&X-Amz-Credential={ACCESS_KEY}%2F20130524%2Fus-east-1%2Fs3%2Faws4_request"
    f"&X-Amz-Date={DATE}&X-Amz-Expires=86400&X-Amz-SignedHeaders=host"
    "&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404",
    {"host": HOST},
)

CHUNK_BYTES = (65536, 1024, 0)
CHUNKED_SIGNATURES = (
    "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
    "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
    "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9",
)
TRAILER_SIGNATURES = (
    "b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2",
    "1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7",
    "2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992",
)
TRAILER_LINES = (
    b"x-amz-checksum-crc32c:sOO8/Q==\r\n"
    b"x-amz-trailer-signature:d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435\r\n\r\n"
)


def chunks(signatures: tuple[str, ...]) -> bytes:
    """The example's body: 66,560 times `a` in three chunks, up to the empty one's line."""
    body = b""
    for size, signature in zip(CHUNK_BYTES, signatures, strict=True):
        body += f"{size:x};chunk-signature={signature}\r\n".encode() + b"a" * size + (b"\r\n" if size else b"")
    return body


CHUNKED_BODY = chunks(CHUNKED_SIGNATURES) + b"\r\n"
TRAILER_BODY = chunks(TRAILER_SIGNATURES) + TRAILER_LINES
