"""A site on a full disk still reads and deletes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


def test_a_site_on_a_full_disk_still_reads_and_deletes(tmp_path: Path) -> None:
    command = ["unshare", "--map-root-user", "--mount", sys.executable, "-m", "tests.journal.full_disk", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if "no mount" in done.stdout or "unshare" in done.stderr:
        pytest.skip("this machine lets nobody mount a small disk")
    assert done.returncode == 0, done.stderr
    assert "kept every promise" in done.stdout
