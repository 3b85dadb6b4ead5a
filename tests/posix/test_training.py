"""PyTorch's DataLoader, in process and over HTTP, with forked and spawned workers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.endpoint import command_environment
from tests.posix.conftest import IN_PROCESS, OVER_HTTP
from tests.system_torch import need_torch, run_training

PROGRAM = Path(__file__).parent / "training.py"


@pytest.fixture(scope="module")
def torch_is_there() -> None:
    need_torch()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "start"),
    [
        (IN_PROCESS, "fork"),
        (OVER_HTTP, "spawn"),
        pytest.param(IN_PROCESS, "spawn", marks=pytest.mark.soak),
        pytest.param(OVER_HTTP, "fork", marks=pytest.mark.soak),
    ],
    indirect=["way"],
)
def test_pytorchs_loader_reads_with_workers_and_a_checkpoint_comes_back(torch_is_there, reach, bucket, start):
    options = {name: str(value) for name, value in reach.items()} | {"bucket": bucket, "start": start}
    found = run_training(PROGRAM, command_environment(), options)
    every = [float(number) for number in range(24)]
    assert found["epochs"] == [[every[at : at + 4] for at in range(0, 24, 4)]] * 2
    assert sorted(each for batch in found["sharded"] for each in batch) == every, "each worker reads its own shards"
    assert found["checkpoint"]
