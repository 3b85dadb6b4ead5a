"""What a process let go of is there when it is needed again, without the kernel's help."""

from __future__ import annotations

import subprocess
import sys

FAULTS = """
import resource, sys
from gateway.site.processes.memory import keep_freed_memory
if "keep" in sys.argv:
    assert keep_freed_memory()
for number in range(100):
    if number == 10:
        begun = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    [bytes(1 << 20) for _ in range(16)]
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - begun)
"""


def faults(*arguments: str) -> int:
    done = subprocess.run([sys.executable, "-c", FAULTS, *arguments], capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_buffers_that_come_and_go_are_not_fetched_from_the_kernel_each_time() -> None:
    assert faults("keep") < faults() / 10
