"""`entrepot status --wait settled` and `--watch`, and what two signals do to `serve`."""

from __future__ import annotations

import signal
import socket
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

from tests.endpoint import ENTREPOT, command_environment, run_entrepot, started
from tests.site.running import change_config, client, counted, lines, until


def test_status_waits_until_all_copies_are_where_they_should_be(tmp_path: Path) -> None:
    with started(tmp_path / "site", ["--workers", "1"]) as (endpoint, _):
        s3 = client(endpoint)
        s3.create_bucket(Bucket="bucket")
        for n in range(20):
            s3.put_object(Bucket="bucket", Key=f"{n}", Body=bytes(100_000))
        with (endpoint.dir / "entrepot.toml").open("a") as config:
            config.write(f'\n[backends.more]\ntype = "local"\ncluster = "home"\npath = "{tmp_path / "more"}"\n')
        change_config(endpoint.dir, "domains = []", 'domains = []\ncluster = "home"')
        change_config(endpoint.dir, 'keep = ["disk"]', 'keep = ["disk", "more"]')
        run_entrepot("reload", str(endpoint.dir))
        shown = run_entrepot("status", str(endpoint.dir), "--wait", "settled").stdout
        assert "copies: all are where they should be" in shown
        assert "backend more: in use, 20 block(s)" in shown


def test_status_is_shown_again_and_again(tmp_path: Path) -> None:
    with started(tmp_path / "site", ["--workers", "1"]) as (endpoint, _):
        watching = subprocess.Popen(
            [*ENTREPOT, "status", str(endpoint.dir), "--watch"],
            env=command_environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        assert watching.stdout is not None
        shown = [line for line, _ in zip(watching.stdout, range(60), strict=False) if line.startswith("-- 2")]
        watching.send_signal(signal.SIGINT)
        watching.communicate(timeout=60)
        assert len(shown) >= 2
        assert watching.returncode == 130


def test_a_second_signal_ends_a_site_whose_requests_do_not_end(tmp_path: Path) -> None:
    with started(tmp_path / "site", ["--workers", "1"]) as (endpoint, process):
        s3 = client(endpoint)
        s3.create_bucket(Bucket="bucket")
        s3.put_object(Bucket="bucket", Key="kept", Body=b"kept")
        where = urlsplit(s3.generate_presigned_url("put_object", Params={"Bucket": "bucket", "Key": "stalled"}))
        stalled = socket.create_connection((where.hostname, where.port))
        head = f"PUT {where.path}?{where.query} HTTP/1.1\r\nHost: {where.netloc}\r\nContent-Length: 1000000\r\n\r\n"
        stalled.sendall(head.encode() + b"x" * 1_000)  # and no more
        until(lambda: counted(endpoint, "entrepot_requests_in_flight") >= 1, "the request")
        process.send_signal(signal.SIGTERM)
        until(lambda: any(line["event"] == "stopping" for line in lines(endpoint)), "the stop")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert any(line["event"] == "stopping at once" for line in lines(endpoint))
        stalled.close()
    with started(tmp_path / "site", ["--workers", "1"]) as (endpoint, _):
        assert client(endpoint).get_object(Bucket="bucket", Key="kept")["Body"].read() == b"kept"
