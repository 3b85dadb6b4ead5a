"""A served site whose bucket is deleted while uploads into it are open: the keeper ends them, every figure follows."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.endpoint import run_entrepot, started
from tests.files import block_files
from tests.new_sites import new_site
from tests.site.running import client, counted, until

UPLOADS = 30
BEHIND = ("uploads of gone buckets", "freed", "dead blocks")


def test_the_uploads_into_a_bucket_that_is_gone_are_gone_from_every_figure_and_from_the_disk(tmp_path: Path) -> None:
    folder = tmp_path / "site"
    new_site(folder)
    with started(folder, ["--workers", "1"]) as (endpoint, _):
        s3 = client(endpoint)
        s3.create_bucket(Bucket="leaving")

        def begin(number: int) -> None:
            upload = s3.create_multipart_upload(Bucket="leaving", Key=f"k{number}")["UploadId"]
            s3.upload_part(Bucket="leaving", Key=f"k{number}", UploadId=upload, PartNumber=1, Body=b"x" * 100_000)

        with ThreadPoolExecutor(10) as pool:
            list(pool.map(begin, range(UPLOADS)))
        assert uploads_of(folder) == UPLOADS
        s3.delete_bucket(Bucket="leaving")
        s3.create_bucket(Bucket="leaving")
        mine = s3.create_multipart_upload(Bucket="leaving", Key="k1")["UploadId"]
        assert [each["UploadId"] for each in s3.list_multipart_uploads(Bucket="leaving")["Uploads"]] == [mine]
        assert uploads_of(folder) == 1
        run_entrepot("fsck", str(folder))  # what is still to be ended is no damage
        until(lambda: not sealed(folder), "the parts' bytes to go")
        until(lambda: not any(counted(endpoint, "entrepot_backlog", kind=kind) for kind in BEHIND), "no backlog")
        run_entrepot("fsck", str(folder))
        s3.abort_multipart_upload(Bucket="leaving", Key="k1", UploadId=mine)
        s3.delete_bucket(Bucket="leaving")
        assert uploads_of(folder) == 0


def uploads_of(folder: Path) -> int:
    """What `entrepot status` says."""
    return int(json.loads(run_entrepot("status", str(folder), "--json").stdout)["uploads"])


def sealed(folder: Path) -> list[Path]:
    """The blocks on the disk."""
    return block_files(folder / "blocks")
