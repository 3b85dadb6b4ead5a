"""rclone: the Go SDK's signer, files copied many at a time, each checked by its MD5."""

import json
import subprocess

import pytest

from tests.clients.conftest import digest_of, files_below, program
from tests.clients.odd_keys import odd_keys

CANNOT = {
    "doubled slash": "the program cleans paths",
    "leading slash": "the program cleans paths",
    "dots": "the program cleans paths",
    "dots alone": "the program cleans paths",
    "trailing slash": "to the program a name that ends in a slash is a directory",
    "beside a folder": "to the program a file and a directory of one name cannot both be",
    "control characters": "the program writes them with look-alikes of its own",
}


@pytest.fixture
def rclone(endpoint, tmp_path):
    """Runs one `rclone` command, its remote `site:` being the endpoint, and returns what it printed."""
    remote = {
        "TYPE": "s3",
        "PROVIDER": "Other",
        "ENDPOINT": endpoint.url,
        "ACCESS_KEY_ID": endpoint.access_key,
        "SECRET_ACCESS_KEY": endpoint.secret_key,
        "REGION": endpoint.region,
        "FORCE_PATH_STYLE": "true",
    }
    environment = endpoint.environment | {f"RCLONE_CONFIG_SITE_{name}": value for name, value in remote.items()}
    environment |= {"RCLONE_CONFIG": str(tmp_path / "rclone.conf"), "LC_ALL": "C.UTF-8"}

    def run(*arguments: str, given: bytes = b"") -> bytes:
        done = subprocess.run(
            [program("rclone"), *arguments],
            env=environment,
            cwd=tmp_path,
            input=given,
            capture_output=True,
            timeout=900,
        )
        assert done.returncode == 0, f"rclone {' '.join(arguments)}\n{done.stdout!r}\n{done.stderr.decode()}"
        return done.stdout

    return run


def test_buckets_are_made_listed_and_removed(rclone, bucket):
    name = bucket + "-more"
    rclone("mkdir", f"site:{name}")
    assert name.encode() in rclone("lsd", "site:")
    rclone("rmdir", f"site:{name}")
    assert name.encode() not in rclone("lsd", "site:")


def test_a_file_is_copied_up_checked_moved_and_copied_down(rclone, bucket, payload, tmp_path):
    rclone("copyto", str(payload.path), f"site:{bucket}/up")
    rclone("moveto", f"site:{bucket}/up", f"site:{bucket}/moved")
    (found,) = json.loads(rclone("lsjson", f"site:{bucket}"))
    assert (found["Name"], found["Size"]) == ("moved", payload.size)
    rclone("copyto", f"site:{bucket}/moved", "down")
    assert digest_of(tmp_path / "down") == payload.sha256


def test_a_tree_is_synced_verified_and_synced_back(rclone, bucket, tmp_path, payloads):
    tree = tmp_path / "tree"
    names = ["a.txt", "b/c d.txt", "b/plus+and%percent", "grüße/日本語.txt", 'quotes/it\'s "so" & <so>']
    for name in names:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(name)
    (tree / "large").write_bytes(payloads["just over a part"].read())
    rclone("sync", "tree", f"site:{bucket}/t")
    rclone("check", "tree", f"site:{bucket}/t", "--download")
    (tree / "a.txt").unlink()
    rclone("sync", "tree", f"site:{bucket}/t")
    rclone("sync", f"site:{bucket}/t", "back")
    assert files_below(tmp_path / "back") == {*names, "large"} - {"a.txt"}
    assert digest_of(tmp_path / "back/large") == payloads["just over a part"].sha256
    rclone("purge", f"site:{bucket}/t")
    assert json.loads(rclone("lsjson", f"site:{bucket}")) == []


def test_odd_keys_are_streamed_up_listed_read_and_deleted(rclone, s3, bucket):
    keys = list(odd_keys(CANNOT).values())
    for key in keys:
        rclone("rcat", f"site:{bucket}/{key}", given=key.encode())
    assert {each["Key"] for each in s3.list_objects_v2(Bucket=bucket)["Contents"]} == set(keys)
    listed = json.loads(rclone("lsjson", "--recursive", "--files-only", f"site:{bucket}"))
    assert {each["Path"] for each in listed} == set(keys)
    for key in keys:
        assert rclone("cat", f"site:{bucket}/{key}") == key.encode()
        rclone("deletefile", f"site:{bucket}/{key}")
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0
