"""Load from a cheap client: wrk, fed with presigned requests from a file, so that the server is what is measured."""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

_SCRIPT = """
local paths = {{}}
for line in io.lines("{paths}") do paths[#paths + 1] = line end
local body = nil
{body}
local at = 0
local step = 1
function setup(thread) end
function init(args)
  math.randomseed(os.time())
  at = {start}
end
{delay}
function request()
  at = at + 1
  if at > #paths then at = 1 end
  return wrk.format("{method}", paths[at], nil, body)
end
function done(summary, latency, requests)
  local errors = summary.errors
  local broken = errors.connect + errors.read + errors.write + errors.timeout
  io.write(string.format("RESULT %d %d %d %d %d\\n", summary.requests, summary.duration, summary.bytes,
    errors.status, broken))
  io.write(string.format("LATENCY %d %d %d\\n", latency:percentile(50), latency:percentile(99), latency.mean))
end
"""


@dataclass(frozen=True)
class Load:
    """What one run of wrk saw. `rate` is requests a second, `megabytes` 10^6 bytes received a second."""

    rate: float
    megabytes: float
    refused: int
    broken: int
    median_ms: float
    p99_ms: float
    mean_ms: float


def drive(
    address: str,
    paths: list[str],
    *,
    method: str = "GET",
    body: bytes = b"",
    connections: int = 16,
    seconds: float = 4,
    pause_ms: int = 0,
) -> Load:
    """Send *method* to the *paths* one after the other, around and around, for so many seconds. Each connection waits
    before each request, *pause_ms* on average."""
    with tempfile.TemporaryDirectory() as folder:
        listed = Path(folder, "paths")
        listed.write_text("\n".join(paths) + "\n")
        payload = Path(folder, "body")
        payload.write_bytes(body)
        script = Path(folder, "script.lua")
        read = f'local handle = io.open("{payload}", "rb"); body = handle:read("*a"); handle:close()' if body else ""
        delay = f"function delay() return math.random(0, {2 * pause_ms}) end" if pause_ms else ""
        script.write_text(_SCRIPT.format(paths=listed, method=method, body=read, start=0, delay=delay))
        command = [
            "wrk", "-t1", f"-c{connections}", f"-d{seconds:g}s", "--timeout", "30s", "-s", str(script), address,
        ]  # fmt: skip
        out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    result = re.search(r"RESULT (\d+) (\d+) (\d+) (\d+) (\d+)", out)
    latency = re.search(r"LATENCY (\d+) (\d+) (\d+)", out)
    if result is None or latency is None:
        raise RuntimeError(f"wrk said nothing that can be read: {out}")
    requests, micros, received, refused, broken = map(int, result.groups())
    return Load(
        rate=requests / micros * 1e6,
        megabytes=received / micros,
        refused=refused,
        broken=broken,
        median_ms=int(latency[1]) / 1000,
        p99_ms=int(latency[2]) / 1000,
        mean_ms=int(latency[3]) / 1000,
    )


def sound(load: Load) -> float:
    """Its rate. Raises `RuntimeError` where requests failed: such a run measures nothing."""
    if load.refused or load.broken:
        raise RuntimeError(f"a benchmark whose requests fail measures nothing: {load}")
    return load.rate
