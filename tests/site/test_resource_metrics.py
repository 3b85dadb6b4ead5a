"""`/metrics` says what the processes of a site use, of memory, processors and disks."""

from __future__ import annotations

import os
from pathlib import Path

from gateway import __version__
from tests.endpoint import started
from tests.site.running import client, counted, until, watch


def test_memory_processors_and_disks_are_measured(tmp_path: Path) -> None:
    with started(tmp_path / "site", ["--workers", "1"]) as (endpoint, _):
        s3 = client(endpoint)
        s3.create_bucket(Bucket="bucket")
        s3.put_object(Bucket="bucket", Key="key", Body=bytes(9 << 20))
        until(lambda: counted(endpoint, "entrepot_disk_size_bytes", disk="backend disk"), "the keeper's look")
        for process in ("supervisor", "committer", "keeper", "worker 0"):
            assert counted(endpoint, "entrepot_process_resident_bytes", process=process) > 10 << 20
            assert counted(endpoint, "entrepot_process_cpu_seconds_total", process=process) > 0
        disk = os.statvfs(endpoint.dir)
        for label in ("journal", "backend disk"):
            assert counted(endpoint, "entrepot_disk_size_bytes", disk=label) == disk.f_blocks * disk.f_frsize
            assert 0 < counted(endpoint, "entrepot_disk_free_bytes", disk=label) <= disk.f_blocks * disk.f_frsize
        assert counted(endpoint, "entrepot_journal_bytes", file="reserve") == 16 << 20
        assert counted(endpoint, "entrepot_journal_bytes", file="database") > 0
        assert f'entrepot_build_info{{entrepot="{__version__}"' in watch(endpoint, "/metrics")[1]
