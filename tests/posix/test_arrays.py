"""zarr and dask, in process and over HTTP."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from types import ModuleType

import numpy
import pytest
import zarr
from zarr.storage import FsspecStore

from gateway.posix.fsspec.filesystem import EntrepotFileSystem
from tests.endpoint import command_environment

pytestmark = pytest.mark.slow


def texts(reach: dict) -> dict:
    """The options as a program says them that knows nothing of paths."""
    return {name: str(value) for name, value in reach.items()}


@pytest.fixture
def dask_array() -> ModuleType:
    """`dask.array`, which takes a second to load: only in the processes that run these tests."""
    return importlib.import_module("dask.array")


@pytest.fixture
def table() -> numpy.ndarray:
    return numpy.arange(200 * 300, dtype="f8").reshape(200, 300)


def test_zarr_writes_and_reads_an_array_by_its_address(reach, fs, bucket, table):
    url, options = f"entrepot://{bucket}/array.zarr", texts(reach)
    array = zarr.open_array(
        url, mode="w", shape=table.shape, chunks=(50, 100), dtype=table.dtype, storage_options=options
    )
    array[:] = table
    array[10:20, 5] = -1
    again = zarr.open_array(url, mode="r", storage_options=options)
    wanted = table.copy()
    wanted[10:20, 5] = -1
    assert numpy.array_equal(again[:], wanted)
    assert numpy.array_equal(again[40:60, 90:110], wanted[40:60, 90:110])
    assert len(fs.find(f"{bucket}/array.zarr/c")) == 12


def test_zarr_writes_and_reads_a_group_in_shards(reach, bucket, table):
    fs = EntrepotFileSystem(**reach, asynchronous=True)
    store = FsspecStore(fs, path=f"{bucket}/group.zarr")
    group = zarr.create_group(store, attributes={"run": 7})
    group.create_array("a/b", shape=table.shape, chunks=(10, 50), shards=(100, 150), dtype=table.dtype)[:] = table
    again = zarr.open_group(FsspecStore(fs, path=f"{bucket}/group.zarr", read_only=True), mode="r")
    assert again.attrs["run"] == 7
    assert sorted(again["a"].array_keys()) == ["b"]
    assert numpy.array_equal(again["a/b"][15:25, 60:160], table[15:25, 60:160])


def test_dask_writes_and_computes_an_array(reach, bucket, table, dask_array):
    url, options = f"entrepot://{bucket}/dask.zarr", texts(reach)
    dask_array.from_array(table, chunks=(100, 100)).to_zarr(url, storage_options=options)
    found = dask_array.from_zarr(url, storage_options=options)
    assert float((found + 1).sum().compute(scheduler="threads")) == float((table + 1).sum())


def test_dasks_processes_read_for_themselves(reach, bucket, table, dask_array):
    url, options = f"entrepot://{bucket}/dask.zarr", texts(reach)
    dask_array.from_array(table, chunks=(100, 150)).to_zarr(url, storage_options=options)
    found = dask_array.from_zarr(url, storage_options=options)
    assert float(found.sum().compute(scheduler="processes", num_workers=2)) == float(table.sum())


def test_a_program_that_ends_says_nothing_of_connections_that_its_loops_left(reach, bucket):
    """zarr has a loop of its own, which it stops before the file system hears that the program ends."""
    program = (
        "import sys, json, zarr; url, options = sys.argv[1], json.loads(sys.argv[2]);"
        "zarr.open_array(url, mode='w', shape=(9,), chunks=(3,), dtype='i4', storage_options=options)[:] = 7"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, f"entrepot://{bucket}/array.zarr", json.dumps(texts(reach))],
        env=command_environment(),
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert (done.returncode, done.stderr) == (0, "")
