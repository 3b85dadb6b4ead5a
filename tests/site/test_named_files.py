"""Files that a config names, where something else than a file lies there: nothing waits, and what is wrong is said."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from backends import errors as backend_errors
from backends.named_files import read_named_file
from backends.s3.settings import S3Settings
from gateway.config.loading import read
from gateway.config.models import ServerSection
from gateway.crypto import master
from gateway.errors import Misconfigured
from gateway.metrics.json_log import JsonLog
from gateway.posix.rpc.endpoint import EndpointOptions, resolve_endpoint
from gateway.site.processes.tls import Certificate
from gateway.site.storage.backend_factory import open_s3
from gateway.timing import Timing
from gateway.topology import BackendPlace, S3Place

RELEASE_SECONDS = 5.0
"""Who opened a FIFO waits no longer for its writer, so that a test fails rather than hangs."""


@pytest.fixture
def fifo(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "fifo"
    os.mkfifo(path, 0o600)

    released: list[bool] = []

    def release() -> None:
        released.append(True)
        with suppress(OSError):
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))

    timer = threading.Timer(RELEASE_SECONDS, release)
    timer.start()
    yield path
    timer.cancel()
    assert not released, "somebody waited for a writer"


def test_a_fifo_a_device_and_a_file_without_end_are_refused(fifo: Path, tmp_path: Path) -> None:
    for path in (fifo, Path("/dev/zero"), tmp_path):
        with pytest.raises(OSError, match=r"not a regular file|Is a directory"):
            read_named_file(path)
    (tmp_path / "long").write_bytes(bytes(11))
    assert read_named_file(tmp_path / "long", 11) == bytes(11)
    with pytest.raises(OSError, match="longer than 10 bytes"):
        read_named_file(tmp_path / "long", 10)
    with pytest.raises(FileNotFoundError):
        read_named_file(tmp_path / "none")


def ca_file(path: Path) -> Any:
    return S3Settings(
        "b", "bucket", "", None, None, None, None, None, None, "auto", False, str(path), 1, 1.0, 1.0, "auto"
    ).ca_pem()  # fmt: skip


def clients_ca_file(path: Path) -> Any:
    return resolve_endpoint(
        EndpointOptions(endpoint="https://x", key="K" * 20, secret="s" * 40, ca_file=str(path))
    ).tls()


def credentials_file(path: Path) -> Any:
    return resolve_endpoint(EndpointOptions(endpoint="https://x", credentials_file=str(path)))


@pytest.mark.parametrize("reads", [read, master.load, ca_file, clients_ca_file, credentials_file])
def test_who_reads_a_named_file_does_not_wait_for_a_fifo(fifo: Path, reads: Callable[[Path], Any]) -> None:
    with pytest.raises((Misconfigured, backend_errors.Misconfigured), match="regular file"):
        reads(fifo)


@pytest.mark.parametrize("which", ["tls_certificate", "tls_key"])
async def test_a_fifo_is_no_certificate(fifo: Path, tmp_path: Path, which: str) -> None:
    section = ServerSection(
        **{"listen": "127.0.0.1:0", "tls_certificate": "tls.crt", "tls_key": "tls.key", which: "fifo"}
    )
    (tmp_path / "tls.crt").write_bytes(b"")
    with pytest.raises(Misconfigured, match="it is not a regular file"):
        await Certificate.of(tmp_path, section, JsonLog("test", timing=Timing()), Timing())


@pytest.mark.parametrize("which", ["secret_key_file", "profile"])
async def test_a_backend_whose_keys_lie_in_a_fifo_is_misconfigured(
    fifo: Path, which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {"access_key": "K", "secret_key_file": str(fifo)} if which == "secret_key_file" else {"profile": "p"}
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(fifo))
    s3 = S3Place(bucket="bucket", endpoint="http://127.0.0.1:1", **keys)
    place = BackendPlace(name="far", type="s3", cluster="", calls=1, deadline_seconds=5.0, s3=s3)
    with pytest.raises(backend_errors.Misconfigured, match="it is not a regular file"):
        await open_s3(place, s3, make=False, timing=Timing())
