"""PyTorch's DataLoader, over both ways, with workers that are forked and that are spawned."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.endpoint import command_environment

PROGRAM = Path(__file__).parent / "training.py"


@pytest.fixture(scope="module")
def torch_is_there() -> None:
    """Skips loudly where PyTorch cannot be loaded; in CI only where the system's is for another Python than ours."""
    tried = run("import sys; sys.path.append('/usr/lib/python3/dist-packages'); import torch")
    if not tried.returncode:
        return
    version = "import sys; print(*sys.version_info[:2])"
    fits = run(version).stdout == run(version, "/usr/bin/python3").stdout
    assert os.environ.get("CI") != "true" or not fits, tried.stderr
    why = tried.stderr.strip().rpartition("\n")[2]
    pytest.skip(f"NOT TESTED, for there is no PyTorch that this Python can load: {why}; run tests/install-clients")


def run(program: str, python: str = sys.executable) -> subprocess.CompletedProcess[str]:
    return subprocess.run([python, "-c", program], capture_output=True, text=True, timeout=280)


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_pytorchs_loader_reads_with_workers_and_a_checkpoint_comes_back(torch_is_there, reach, bucket, start):
    options = {name: str(value) for name, value in reach.items()} | {"bucket": bucket, "start": start}
    done = subprocess.run(
        [sys.executable, str(PROGRAM), json.dumps(options)],
        env=command_environment(),
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert not done.returncode, done.stderr
    found = json.loads(done.stdout)
    every = [float(number) for number in range(24)]
    assert found["epochs"] == [[every[at : at + 4] for at in range(0, 24, 4)]] * 2
    assert sorted(each for batch in found["sharded"] for each in batch) == every, "each worker reads its own shards"
    assert found["checkpoint"]
