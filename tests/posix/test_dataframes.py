"""pandas and pyarrow, which find the protocol by its entry point."""

from __future__ import annotations

import pandas
import pyarrow
import pyarrow.dataset
import pyarrow.parquet
import pytest


@pytest.fixture
def url(way, bucket, monkeypatch) -> str:
    for name, value in way.variables.items():
        monkeypatch.setenv(name, value)
    return f"entrepot://{bucket}"


@pytest.fixture
def frame() -> pandas.DataFrame:
    return pandas.DataFrame({"year": [2024, 2024, 2025] * 1000, "loss": range(3000)})


def test_pandas_writes_and_reads_parquet_and_csv_without_any_option(url, frame):
    frame.to_parquet(f"{url}/runs.parquet")
    assert pandas.read_parquet(f"{url}/runs.parquet").equals(frame)
    assert pandas.read_parquet(f"{url}/runs.parquet", columns=["loss"])["loss"].sum() == frame["loss"].sum()
    frame.to_csv(f"{url}/runs.csv.gz", index=False)
    assert pandas.read_csv(f"{url}/runs.csv.gz").equals(frame)


def test_pandas_takes_the_site_or_the_gateway_as_an_option(reach, bucket, frame):
    options = {name: str(value) for name, value in reach.items()}
    frame.to_parquet(f"entrepot://{bucket}/runs.parquet", storage_options=options)
    assert pandas.read_parquet(f"entrepot://{bucket}/runs.parquet", storage_options=options).equals(frame)


def test_pyarrow_writes_and_scans_a_partitioned_dataset(fs, bucket, frame):
    table = pyarrow.Table.from_pandas(frame, preserve_index=False)
    pyarrow.dataset.write_dataset(
        table, f"{bucket}/set", filesystem=fs, format="parquet", partitioning=["year"], partitioning_flavor="hive"
    )
    assert len(fs.glob(f"{bucket}/set/year=2025/*.parquet")) == 1
    found = pyarrow.dataset.dataset(f"{bucket}/set", filesystem=fs, partitioning="hive")
    assert found.count_rows() == 3000
    of_2025 = found.to_table(filter=pyarrow.dataset.field("year") == 2025)
    assert sum(of_2025["loss"].to_pylist()) == frame[frame["year"] == 2025]["loss"].sum()
    pyarrow.parquet.write_table(table, f"{bucket}/one.parquet", filesystem=fs)
    assert pyarrow.parquet.read_metadata(f"{bucket}/one.parquet", filesystem=fs).num_rows == 3000
