"""The system's PyTorch (`tests/install-clients`): a wheel of it would be larger than everything else that is installed.

It comes behind the packages of the environment, in programs that run by themselves: a test's own process is spared it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

PACKAGES = "/usr/lib/python3/dist-packages"


def need_torch() -> None:
    """Skips loudly where PyTorch cannot be loaded; in CI only where the system's is for another Python than ours."""
    tried = _python(f"import sys; sys.path.append({PACKAGES!r}); import torch")
    if not tried.returncode:
        return
    version = "import sys; print(*sys.version_info[:2])"
    fits = _python(version).stdout == _python(version, "/usr/bin/python3").stdout
    assert os.environ.get("CI") != "true" or not fits, tried.stderr
    why = tried.stderr.strip().rpartition("\n")[2]
    pytest.skip(f"NOT TESTED, for there is no PyTorch that this Python can load: {why}; run tests/install-clients")


def run_training(program: Path, environment: Mapping[str, str], options: Mapping[str, Any]) -> Any:
    """What the program answered to its options, both as JSON."""
    done = subprocess.run(
        [sys.executable, str(program), json.dumps(options)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert not done.returncode, done.stderr
    return json.loads(done.stdout)


def _python(program: str, python: str = sys.executable) -> subprocess.CompletedProcess[str]:
    return subprocess.run([python, "-c", program], capture_output=True, text=True, timeout=900)
