"""s3torchconnector: AWS's connector for PyTorch, over Mountpoint's client and AWS's C runtime."""

from pathlib import Path

import pytest

from tests.endpoint import command_environment
from tests.system_torch import need_torch, run_training

PROGRAM = Path(__file__).parent / "s3_training.py"


@pytest.fixture(scope="module")
def torch_is_there() -> None:
    need_torch()


@pytest.mark.parametrize("start", [pytest.param("fork", marks=pytest.mark.soak), "spawn"])
def test_samples_are_read_by_workers_and_checkpoints_come_back(torch_is_there, endpoint, bucket, start):
    options = {"endpoint": endpoint.url, "region": endpoint.region, "bucket": bucket, "start": start}
    environment = endpoint.environment | {"PYTHONPATH": command_environment()["PYTHONPATH"]}
    found = run_training(PROGRAM, environment, options)
    every = [[f"samples/{number:02} ü+%", number * 1000, True] for number in range(24)]
    assert found["mapped"] == every
    assert sorted(found["iterated"]) == every, "each worker reads its own samples"
    assert found["loaded"] == {"sequential": True, "ranges": True, "ranges, unbuffered": True}
    assert "does not exist" in found["given up"], "a writer that ended halfway leaves nothing"
