"""s3fs: S3 as fsspec users see it, over aiobotocore."""

import pytest
import s3fs

from tests.clients.conftest import MIB, digest_of
from tests.clients.odd_keys import odd_keys

CANNOT = {
    "trailing slash": "the client takes a slash at the end off",
    "leading slash": "the client takes slashes before the key off",
}


@pytest.fixture
def files(endpoint):
    return s3fs.S3FileSystem(
        key=endpoint.access_key,
        secret=endpoint.secret_key,
        endpoint_url=endpoint.url,
        client_kwargs={"region_name": endpoint.region},
        use_listings_cache=False,
        skip_instance_cache=True,
    )


def test_a_file_comes_back_as_it_went(files, bucket, payload, tmp_path):
    files.put_file(str(payload.path), f"{bucket}/k")
    assert files.info(f"{bucket}/k")["size"] == payload.size
    files.get_file(f"{bucket}/k", str(tmp_path / "back"))
    assert digest_of(tmp_path / "back") == payload.sha256


def test_an_open_file_is_written_in_blocks_and_read_anywhere(files, bucket, payloads):
    body = payloads["just over a part"].read()
    with files.open(f"{bucket}/k", "wb", block_size=5 * MIB) as file:
        for start in range(0, len(body), 700_000):
            file.write(body[start : start + 700_000])
    with files.open(f"{bucket}/k", "rb", block_size=MIB) as file:
        for start in (0, 3 * MIB - 7, 5 * MIB - 1):
            file.seek(start)
            assert file.read(100) == body[start : start + 100]
    assert files.cat_file(f"{bucket}/k", start=-10) == body[-10:]


def test_odd_keys_are_piped_found_copied_and_removed(files, bucket):
    keys = list(odd_keys(CANNOT).values())
    for key in keys:
        files.pipe_file(f"{bucket}/{key}", key.encode())
    for key in keys:
        assert files.cat_file(f"{bucket}/{key}") == key.encode()
        files.cp_file(f"{bucket}/{key}", f"{bucket}/copy")
        assert files.cat_file(f"{bucket}/copy") == key.encode()
        files.rm_file(f"{bucket}/{key}")
        assert not files.exists(f"{bucket}/{key}")


def test_a_tree_is_walked_globbed_moved_copied_and_removed(files, bucket):
    for name in ("a/1.txt", "a/2.txt", "a/b/3.txt", "top.txt"):
        files.pipe_file(f"{bucket}/{name}", name.encode())
    assert sorted(files.ls(bucket, detail=False)) == [f"{bucket}/a", f"{bucket}/top.txt"]
    assert files.isdir(f"{bucket}/a")
    assert files.find(f"{bucket}/a") == [f"{bucket}/a/{name}" for name in ("1.txt", "2.txt", "b/3.txt")]
    assert files.glob(f"{bucket}/**/3.*") == [f"{bucket}/a/b/3.txt"]
    files.mv(f"{bucket}/a/b/3.txt", f"{bucket}/moved/3.txt")
    assert files.cat_file(f"{bucket}/moved/3.txt") == b"a/b/3.txt"
    files.cp(f"{bucket}/a", f"{bucket}/copied", recursive=True)
    files.rm(f"{bucket}/a", recursive=True)
    left = ("copied/1.txt", "copied/2.txt", "moved/3.txt", "top.txt")
    assert sorted(files.find(bucket)) == [f"{bucket}/{name}" for name in left]
    with pytest.raises(FileNotFoundError):
        files.info(f"{bucket}/a/1.txt")
