"""pyarrow's S3FileSystem: AWS's SDK for C++, under the tables and datasets of data engineers."""

import hashlib

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as fs
import pyarrow.parquet as pq
import pytest

from tests.clients.odd_keys import odd_keys

CANNOT = {
    **dict.fromkeys(("doubled slash", "leading slash"), "the client's paths have no empty segments"),
    **dict.fromkeys(("dots", "dots alone"), "the client signs `..`, and its HTTP library leaves it out"),
    "trailing slash": "to the client that is a directory",
}
ROWS = 200_000


@pytest.fixture(scope="module")
def system(endpoint):
    return fs.S3FileSystem(
        access_key=endpoint.access_key,
        secret_key=endpoint.secret_key,
        endpoint_override=endpoint.url.removeprefix("http://"),
        scheme="http",
        region=endpoint.region,
    )


def write(system, path: str, data: bytes) -> None:
    with system.open_output_stream(path) as stream:
        stream.write(data)


@pytest.fixture(scope="module")
def table():
    numbers = range(ROWS)
    return pa.table({"n": list(numbers), "part": [n % 5 for n in numbers], "text": [str(n) for n in numbers]})


def test_a_file_comes_back_as_it_went(system, bucket, payload):
    data = payload.read()
    write(system, f"{bucket}/k", data)
    assert system.get_file_info(f"{bucket}/k").size == payload.size
    with system.open_input_stream(f"{bucket}/k") as stream:
        assert hashlib.sha256(stream.read()).hexdigest() == payload.sha256
    with system.open_input_file(f"{bucket}/k") as file:
        assert file.read_at(10, payload.size // 2) == data[payload.size // 2 :][:10]


def test_odd_keys_are_put_got_listed_copied_moved_and_deleted(system, bucket):
    keys = list(odd_keys(CANNOT).values())
    for key in keys:
        write(system, f"{bucket}/{key}", key.encode())
        with system.open_input_stream(f"{bucket}/{key}") as stream:
            assert stream.read() == key.encode()
    below = system.get_file_info(fs.FileSelector(bucket, recursive=True))
    assert {each.path for each in below if each.is_file} == {f"{bucket}/{key}" for key in keys}
    for key in keys:
        system.copy_file(f"{bucket}/{key}", f"{bucket}/copy")
        system.move(f"{bucket}/copy", f"{bucket}/moved")
        with system.open_input_stream(f"{bucket}/moved") as stream:
            assert stream.read() == key.encode()
        system.delete_file(f"{bucket}/{key}")
        assert system.get_file_info(f"{bucket}/{key}").type == fs.FileType.NotFound


def test_directories_are_made_found_and_removed(system, bucket):
    system.create_dir(f"{bucket}/a/b/c", recursive=True)
    write(system, f"{bucket}/a/b/file", b"x")
    listed = system.get_file_info(fs.FileSelector(f"{bucket}/a/b"))
    assert sorted((each.base_name, each.type) for each in listed) == [
        ("c", fs.FileType.Directory),
        ("file", fs.FileType.File),
    ]
    system.delete_dir(f"{bucket}/a/b")
    assert system.get_file_info(f"{bucket}/a/b").type == fs.FileType.NotFound
    assert system.get_file_info(f"{bucket}/a").type == fs.FileType.Directory
    with pytest.raises(FileNotFoundError):
        system.open_input_file(f"{bucket}/a/b/file")


def test_a_table_is_written_and_read_by_columns_and_row_groups(system, bucket, table):
    pq.write_table(table, f"{bucket}/t.parquet", filesystem=system, row_group_size=ROWS // 10)
    assert pq.read_table(f"{bucket}/t.parquet", filesystem=system).equals(table)
    few = pq.read_table(
        f"{bucket}/t.parquet", filesystem=system, columns=["text"], filters=[("n", ">=", ROWS - 9)]
    )  # fmt: skip
    assert few.column("text").to_pylist() == [str(n) for n in range(ROWS - 9, ROWS)]


def test_a_dataset_is_written_in_partitions_read_by_one_and_replaced(system, bucket, table):
    for _ in range(2):
        ds.write_dataset(
            table, f"{bucket}/set", format="parquet", partitioning=["part"], filesystem=system,
            existing_data_behavior="delete_matching",
        )  # fmt: skip
        found = ds.dataset(f"{bucket}/set", filesystem=system, partitioning=["part"])
        assert found.count_rows() == ROWS
        assert found.to_table(filter=ds.field("part") == 3).num_rows == ROWS // 5
