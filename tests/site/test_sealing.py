"""A site whose blocks are not encrypted: they can be read by others, and rot and lies are noticed all the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from tests.endpoint import run_entrepot, started
from tests.files import block_files
from tests.new_sites import new_site
from tests.site.running import change_config, client, entrepot, until

TEXT = b"anybody may read this\n" * 60_000


def test_tagged_blocks_are_readable_and_a_flipped_bit_is_refused_all_the_same(tmp_path: Path) -> None:
    site = tmp_path / "site"
    new_site(site, "tagged")
    with started(site) as (endpoint, _):
        s3 = client(endpoint)
        s3.create_bucket(Bucket="kept")
        s3.put_object(Bucket="kept", Key="open", Body=TEXT)
        assert s3.get_object(Bucket="kept", Key="open")["Body"].read() == TEXT
        part = s3.get_object(Bucket="kept", Key="open", Range="bytes=100000-100099")["Body"].read()
        assert part == TEXT[100_000:100_100]
        (block,) = block_files(site / "blocks")
        assert TEXT[:1_000] in block.read_bytes()
        assert entrepot(endpoint, "keys", "list")[0]["mode"] == "tagged"
    assert run_entrepot("fsck", str(site), "--read").stdout.rstrip().endswith("clean")
    sealed = bytearray(block.read_bytes())
    sealed[sealed.index(TEXT[:1_000]) + 7] ^= 1
    block.write_bytes(sealed)
    found = run_entrepot("fsck", str(site), "--read", "--json", check=False)
    assert (found.returncode, json.loads(found.stdout)["kinds"]) == (3, {"block-damaged": 1})
    with started(site) as (endpoint, _):
        s3 = client(endpoint, retries=0)
        for first in ("bytes=0-99", "bytes=0-"):
            with pytest.raises(ClientError) as refused:
                s3.get_object(Bucket="kept", Key="open", Range=first)
            assert refused.value.response["Error"]["Code"] == "InternalError"
            assert "block" not in refused.value.response["Error"]["Message"], "what is damaged is for the log"
        assert s3.get_object(Bucket="kept", Key="open", Range="bytes=200000-")["Body"].read() == TEXT[200_000:]


def test_the_mode_is_changed_in_the_config_and_what_was_written_before_stays_readable(tmp_path: Path) -> None:
    site = tmp_path / "site"
    new_site(site, "tagged")
    with started(site) as (endpoint, _):
        s3 = client(endpoint)
        s3.create_bucket(Bucket="kept")
        s3.put_object(Bucket="kept", Key="open", Body=TEXT)
    change_config(site, 'mode = "tagged"', 'mode = "aes-256-gcm"')
    with started(site) as (endpoint, _):
        s3 = client(endpoint)
        until(lambda: [each["mode"] for each in entrepot(endpoint, "keys", "list")][-1] == "aes-256-gcm", "a new key")
        s3.put_object(Bucket="kept", Key="sealed", Body=TEXT)
        for key in ("open", "sealed"):
            assert s3.get_object(Bucket="kept", Key=key)["Body"].read() == TEXT
    assert sorted(TEXT[:1_000] in block.read_bytes() for block in block_files(site / "blocks")) == [False, True]
    assert run_entrepot("fsck", str(site), "--read").stdout.rstrip().endswith("clean")
