"""What a client keeps secret is written nowhere: neither in the log, nor in metrics, nor in what is answered."""

from __future__ import annotations

import base64
import http.client
from pathlib import Path
from urllib.parse import urlsplit

from tests.endpoint import Endpoint, started
from tests.site.running import client, lines, loud_site, until, watch

CUSTOMER_KEY = bytes(range(7, 39))
TOKEN = "session-token-that-nobody-may-see"
FORGED = "f0" * 32


def send(endpoint: Endpoint, method: str, target: str, headers: dict[str, str]) -> bytes:
    """A request as it stands; its answer's head and body."""
    connection = http.client.HTTPConnection(urlsplit(endpoint.url).netloc, timeout=600)
    try:
        connection.request(method, target, headers=headers)
        answer = connection.getresponse()
        return str(answer.getheaders()).encode() + answer.read()
    finally:
        connection.close()


def test_no_secret_of_a_request_is_in_log_metrics_or_errors(tmp_path: Path) -> None:
    site = loud_site(tmp_path / "site")
    with started(site) as (endpoint, _):
        s3 = client(endpoint)
        s3.create_bucket(Bucket="kept")
        presigned = s3.generate_presigned_url("put_object", Params={"Bucket": "kept", "Key": "k"}).removeprefix(
            endpoint.url
        )
        signature = presigned.split("X-Amz-Signature=")[1][:64]
        credential = f"{endpoint.access_key}/20260101/us-east-1/s3/aws4_request"
        forged = f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders=host;x-amz-date, Signature={FORGED}"
        sse = {
            "x-amz-server-side-encryption-customer-algorithm": "AES256",
            "x-amz-server-side-encryption-customer-key": base64.b64encode(CUSTOMER_KEY).decode(),
        }
        answers = [
            send(endpoint, "GET", presigned, {}),  # signed for another method
            send(endpoint, "PUT", presigned + "&x=1", {}),
            send(endpoint, "GET", "/kept/k", {"Authorization": forged, "x-amz-date": "20260101T000000Z"}),
            send(endpoint, "GET", "/kept/k", {"Authorization": f"Basic {FORGED}"}),
            send(endpoint, "GET", "/kept/k", {"Authorization": forged, "x-amz-security-token": TOKEN}),
            send(endpoint, "GET", f"/kept/k?X-Amz-Security-Token={TOKEN}&X-Amz-Algorithm=AWS4-HMAC-SHA256", {}),
            send(endpoint, "PUT", presigned, sse),
            send(endpoint, "GET", f"http://user:{TOKEN}@{urlsplit(endpoint.url).netloc}/kept/k", {}),
        ]
        until(lambda: len([each for each in lines(endpoint) if each["event"] == "request"]) >= 9, "the lines")
        metrics = watch(endpoint, "/metrics")[1]
        seen = watch(endpoint, "/readyz")[1], watch(endpoint, "/healthz")[1]
    secrets = [
        endpoint.secret_key, TOKEN, signature, CUSTOMER_KEY.hex(), base64.b64encode(CUSTOMER_KEY).decode(),
        (site / "master.key").read_text().splitlines()[0].split()[-1],
    ]  # fmt: skip
    for secret in [*secrets, FORGED]:
        assert secret not in endpoint.log.read_text()
        assert secret not in metrics
        assert secret not in str(seen)
    for answer in answers:
        for secret in secrets:  # S3 tells who signs wrongly which signature that was
            assert secret == signature or secret.encode() not in answer, answer
