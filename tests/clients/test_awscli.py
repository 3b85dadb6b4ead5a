"""The AWS CLI: `aws s3` as people type it, and `aws s3api` for keys that file names cannot spell."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clients.conftest import digest_of, files_below
from tests.clients.odd_keys import odd_keys
from tests.endpoint import ROOT

AWS = str(Path(sys.executable).with_name("aws"))
CANNOT = {
    "control characters": "the program prints its tables by line",
}


@pytest.fixture(scope="module")
def forks():
    """The process that forks for each command (`tests.clients.aws_forks`)."""
    command = [sys.executable, "-m", "tests.clients.aws_forks"]
    utf8 = {"LC_ALL": "C.UTF-8", "PYTHONUTF8": "1", "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, env=os.environ | utf8, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.stdin.close()


@pytest.fixture
def aws(endpoint, forks, tmp_path):
    """Runs one `aws` command in a directory of the test's own and returns what it printed."""
    out, err = tmp_path.with_name(tmp_path.name + ".out"), tmp_path.with_name(tmp_path.name + ".err")

    def run(*arguments: str) -> str:
        asked = {"arguments": arguments, "environment": endpoint.environment, "folder": str(tmp_path)}
        forks.stdin.write(json.dumps(asked | {"out": str(out), "err": str(err)}) + "\n")
        forks.stdin.flush()
        status = int(forks.stdout.readline())
        assert status == 0, f"aws {' '.join(arguments)}\n{out.read_text()}\n{err.read_text()}"
        return out.read_text()

    return run


def test_buckets_are_made_listed_and_removed(aws, bucket):
    name = bucket + "-more"
    assert f"make_bucket: {name}" in aws("s3", "mb", f"s3://{name}")
    assert name in aws("s3", "ls")
    assert f"remove_bucket: {name}" in aws("s3", "rb", f"s3://{name}")
    assert name not in aws("s3", "ls")


def test_a_file_is_copied_up_moved_and_copied_down(aws, bucket, payload, tmp_path):
    aws("s3", "cp", str(payload.path), f"s3://{bucket}/up", "--only-show-errors")
    aws("s3", "mv", f"s3://{bucket}/up", f"s3://{bucket}/moved", "--only-show-errors")
    assert aws("s3", "ls", f"s3://{bucket}/").split()[2:] == [str(payload.size), "moved"]
    aws("s3", "cp", f"s3://{bucket}/moved", "down", "--only-show-errors")
    assert digest_of(tmp_path / "down") == payload.sha256
    aws("s3", "rm", f"s3://{bucket}/moved")
    assert aws("s3", "ls", f"s3://{bucket}/") == ""


def test_a_tree_is_synced_there_and_back_and_only_changes_travel(aws, bucket, tmp_path, payloads):
    tree = tmp_path / "tree"
    names = ["a.txt", "b/c d.txt", "b/plus+and%percent", "grüße/日本語.txt", 'quotes/it\'s "so" & <so>']
    for number, name in enumerate(names):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(f"{number} {name}")
        os.utime(tree / name, (1_600_000_000, 1_600_000_000))  # the program compares times, S3's being whole seconds
    (tree / "large").symlink_to(payloads["just over a part"].path)
    aws("s3", "sync", "tree", f"s3://{bucket}/t", "--only-show-errors")
    assert aws("s3", "sync", "tree", f"s3://{bucket}/t") == ""
    (tree / "a.txt").write_text("another length")
    (tree / "b/c d.txt").unlink()
    said = aws("s3", "sync", "tree", f"s3://{bucket}/t", "--delete", "--no-progress")
    assert sorted(line.split(":")[0] for line in said.splitlines()) == ["delete", "upload"]
    aws("s3", "sync", f"s3://{bucket}/t", "back", "--only-show-errors")
    assert files_below(tmp_path / "back") == {*names, "large"} - {"b/c d.txt"}
    assert (tmp_path / "back/a.txt").read_text() == "another length"
    assert (tmp_path / "back" / names[-1]).read_text() == f"4 {names[-1]}"
    assert digest_of(tmp_path / "back/large") == payloads["just over a part"].sha256


def test_a_prefix_is_listed_copied_and_removed_as_a_folder(aws, bucket, tmp_path):
    (tmp_path / "x").write_text("x")
    for number in range(5):
        aws("s3", "cp", "x", f"s3://{bucket}/folder/{number}", "--only-show-errors")
    assert aws("s3", "ls", f"s3://{bucket}").split() == ["PRE", "folder/"]
    assert len(aws("s3", "ls", "--recursive", "--summarize", f"s3://{bucket}").split("\n")) == 9
    aws("s3", "cp", "--recursive", f"s3://{bucket}/folder", f"s3://{bucket}/other", "--only-show-errors")
    aws("s3", "rm", "--recursive", f"s3://{bucket}/folder", "--only-show-errors")
    assert aws("s3", "ls", f"s3://{bucket}").split() == ["PRE", "other/"]


def test_a_stream_goes_up_from_a_pipe_and_down_to_one(endpoint, bucket, payloads):
    payload = payloads["just over a part"]
    command = [AWS, "s3", "cp", "-", f"s3://{bucket}/piped", "--only-show-errors"]
    with payload.path.open("rb") as file:
        subprocess.run(command, env=endpoint.environment, stdin=file, check=True, timeout=600)
    command = [AWS, "s3", "cp", f"s3://{bucket}/piped", "-"]
    down = subprocess.run(command, env=endpoint.environment, capture_output=True, check=True, timeout=600)
    assert down.stdout == payload.read()


def test_odd_keys_are_put_got_listed_and_removed(aws, s3, bucket, tmp_path):
    keys = odd_keys(CANNOT)
    for number, key in enumerate(keys.values()):
        (tmp_path / f"in{number}").write_bytes(key.encode())
        # Half of them through each door: the two build their requests differently.
        if number % 2:
            aws("s3", "cp", f"in{number}", f"s3://{bucket}/{key}", "--only-show-errors")
        else:
            aws("s3api", "put-object", "--bucket", bucket, "--key", key, "--body", f"in{number}")
    listed = json.loads(aws("s3api", "list-objects-v2", "--bucket", bucket, "--output", "json"))
    assert [each["Key"] for each in listed["Contents"]] == sorted(keys.values(), key=str.encode)
    for number, key in enumerate(keys.values()):
        aws("s3api", "get-object", "--bucket", bucket, "--key", key, f"out{number}")
        assert (tmp_path / f"out{number}").read_bytes() == key.encode()
    aws("s3", "rm", "--recursive", f"s3://{bucket}", "--only-show-errors")
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0


def test_the_api_answers_what_a_fresh_bucket_has(aws, bucket):
    aws("s3api", "head-bucket", "--bucket", bucket)
    assert "LocationConstraint" in aws("s3api", "get-bucket-location", "--bucket", bucket)
    assert aws("s3api", "get-bucket-versioning", "--bucket", bucket) == ""
    grants = json.loads(aws("s3api", "get-bucket-acl", "--bucket", bucket, "--output", "json"))["Grants"]
    assert [grant["Permission"] for grant in grants] == ["FULL_CONTROL"]
