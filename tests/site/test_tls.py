"""HTTPS: the certificate is read again when it changes, and a bad one leaves the old one in force."""

from __future__ import annotations

import os
import signal
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cryptography import x509
from cryptography.x509.oid import NameOID

from tests.certificates import self_signed
from tests.endpoint import Endpoint, run_entrepot, started
from tests.new_sites import new_site
from tests.site.running import change_config, client, lines, processes, until


def make_pair(folder: Path, name: str) -> None:
    """A self-signed certificate called *name*, and its key, in place of what was there."""
    certificate, key = self_signed(name)
    for path, content in ((folder / "tls.key", key), (folder / "tls.crt", certificate)):
        beside = path.with_suffix(".new")
        beside.write_bytes(content)
        beside.rename(path)


def served_name(url: str) -> str:
    """The common name of the certificate that is shown at *url*."""
    host, port = url.removeprefix("https://").split(":")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection((host, int(port))) as plain, context.wrap_socket(plain) as wrapped:
        raw = wrapped.getpeercert(binary_form=True)
    assert raw is not None
    (name,) = x509.load_der_x509_certificate(raw).subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(name.value)


def test_a_certificate_that_changes_is_served_and_a_bad_one_is_not(tmp_path: Path) -> None:
    site = tmp_path / "site"
    new_site(site)
    make_pair(site, "first")
    change_config(site, "# tls_certificate", "tls_certificate")
    change_config(site, "# tls_key", "tls_key")
    with started(site) as (endpoint, process):
        assert endpoint.url.startswith("https://")
        s3 = client(endpoint, verify=str(site / "tls.crt"))
        s3.create_bucket(Bucket="kept")
        s3.put_object(Bucket="kept", Key="a", Body=b"a" * 3_000_000)
        assert s3.get_object(Bucket="kept", Key="a")["Body"].read() == b"a" * 3_000_000
        assert served_name(endpoint.url) == "first"
        make_pair(site, "second")
        workers = {name for name in processes(endpoint) if name.startswith("worker")}
        until(lambda: told(endpoint, "the certificate was read again", 0) == workers, "all workers to read it")
        assert served_name(endpoint.url) == "second"
        said = len(lines(endpoint))
        (site / "tls.crt").write_text("no certificate at all")
        until(
            lambda: told(endpoint, "the certificate cannot be used; the old one stays", said) == workers, "complaints"
        )
        for _ in range(4):
            assert served_name(endpoint.url) == "second"
        said = len(lines(endpoint))
        (site / "tls.crt").unlink()
        os.mkfifo(site / "tls.crt")  # to open it would wait for a writer
        until(
            lambda: told(endpoint, "the certificate cannot be used; the old one stays", said) == workers, "complaints"
        )
        assert all("it is not a regular file" in line["why"] for line in lines(endpoint)[said:] if "why" in line)
        for _ in range(4):
            assert served_name(endpoint.url) == "second"
        with idle_connection(endpoint.url):
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0, "who is idle is not waited for"


@contextmanager
def idle_connection(url: str) -> Iterator[None]:
    """A connection on which a request was answered, and whose client neither sends nor reads any more."""
    host, port = url.removeprefix("https://").split(":")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection((host, int(port))) as plain, context.wrap_socket(plain) as wrapped:
        wrapped.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert wrapped.recv(1 << 16).startswith(b"HTTP/1.1 403 ")
        yield


def told(endpoint: Endpoint, event: str, after: int) -> set[str]:
    """Who has logged *event* behind the first *after* lines."""
    return {line["process"] for line in lines(endpoint)[after:] if line["event"] == event}


def test_a_key_that_does_not_fit_keeps_the_gateway_from_starting(tmp_path: Path) -> None:
    site = tmp_path / "site"
    new_site(site)
    make_pair(site, "first")
    (site / "tls.crt").rename(site / "kept.crt")
    make_pair(site, "second")
    (site / "kept.crt").rename(site / "tls.crt")
    change_config(site, "# tls_certificate", "tls_certificate")
    change_config(site, "# tls_key", "tls_key")
    refused = run_entrepot("serve", str(site), "--listen", "127.0.0.1:0", check=False)
    assert refused.returncode == 1
    assert "cannot be used" in refused.stderr.splitlines()[-1]
    assert "Traceback" not in refused.stderr
