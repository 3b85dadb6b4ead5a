"""s3cmd: a signer and an XML reader of its own, years old and still everywhere."""

import subprocess
from urllib.parse import urlsplit

import pytest

from tests.clients.conftest import digest_of, program
from tests.clients.odd_keys import odd_keys

CANNOT = {
    "control characters": "the program replaces them before it sends",
    "punctuation": "the program takes stars and brackets for a pattern",
}


@pytest.fixture
def s3cmd(endpoint, tmp_path):
    """Runs one `s3cmd` command in a directory of the test's own and returns what it printed."""
    address = urlsplit(endpoint.url).netloc
    config = tmp_path / "s3cfg"
    config.write_text(
        "[default]\n"
        f"access_key = {endpoint.access_key}\nsecret_key = {endpoint.secret_key}\n"
        f"host_base = {address}\nhost_bucket = {address}\nbucket_location = {endpoint.region}\n"
        "use_https = False\nsignature_v2 = False\nprogress_meter = False\n"
    )

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [program("s3cmd"), "--config", str(config), *arguments],
            env=endpoint.environment | {"LC_ALL": "C.UTF-8"},
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=900,
        )
        assert done.returncode == 0, f"s3cmd {' '.join(arguments)}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return run


def test_buckets_are_made_listed_and_removed(s3cmd, bucket):
    name = bucket + "-more"
    s3cmd("mb", f"s3://{name}")
    assert f"s3://{name}" in s3cmd("ls")
    s3cmd("rb", f"s3://{name}")
    assert f"s3://{name}" not in s3cmd("ls")


def test_a_file_is_put_moved_and_got(s3cmd, bucket, payload, tmp_path):
    s3cmd("put", str(payload.path), f"s3://{bucket}/up")
    s3cmd("mv", f"s3://{bucket}/up", f"s3://{bucket}/moved")
    assert s3cmd("ls", f"s3://{bucket}/").split()[2:] == [str(payload.size), f"s3://{bucket}/moved"]
    s3cmd("get", f"s3://{bucket}/moved", "down")
    assert digest_of(tmp_path / "down") == payload.sha256
    assert f"File size: {payload.size}" in s3cmd("info", f"s3://{bucket}/moved")


def test_a_tree_is_synced_there_and_back(s3cmd, bucket, tmp_path):
    tree = tmp_path / "tree"
    names = ["a.txt", "b/c d.txt", "b/plus+and%percent", "grüße/日本語.txt", "quotes/it's & <so>"]
    for name in names:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(name)
    s3cmd("sync", "tree/", f"s3://{bucket}/t/")
    assert "upload:" not in s3cmd("sync", "tree/", f"s3://{bucket}/t/")
    (tmp_path / "back").mkdir()
    s3cmd("sync", f"s3://{bucket}/t/", "back/")
    for name in names:
        assert (tmp_path / "back" / name).read_text() == name
    s3cmd("del", "--recursive", f"s3://{bucket}/t/")
    assert s3cmd("ls", "--recursive", f"s3://{bucket}") == ""


def test_odd_keys_are_put_listed_got_and_deleted(s3cmd, s3, bucket, tmp_path):
    keys = odd_keys(CANNOT)
    for number, key in enumerate(keys.values()):
        (tmp_path / f"in{number}").write_bytes(key.encode())
        s3cmd("put", f"in{number}", f"s3://{bucket}/{key}" + (f"in{number}" if key.endswith("/") else ""))
    sent = {key + (f"in{number}" if key.endswith("/") else "") for number, key in enumerate(keys.values())}
    assert {each["Key"] for each in s3.list_objects_v2(Bucket=bucket)["Contents"]} == sent
    listed = s3cmd("ls", "--recursive", f"s3://{bucket}")
    for key in sent:
        assert f"s3://{bucket}/{key}" in listed
    for number, key in enumerate(keys.values()):
        if not key.endswith("/"):
            s3cmd("get", f"s3://{bucket}/{key}", f"out{number}")
            assert (tmp_path / f"out{number}").read_bytes() == key.encode()
            s3cmd("del", f"s3://{bucket}/{key}")
    left = {each["Key"] for each in s3.list_objects_v2(Bucket=bucket).get("Contents", [])}
    assert left == {key for key in sent if key not in keys.values()}
