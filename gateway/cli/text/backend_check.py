"""The result of `entrepot backend test` as JSON and as text."""

from __future__ import annotations

from typing import Any

from gateway.site.admin.backend_check import BackendCheckResult


def to_dict(result: BackendCheckResult) -> dict[str, Any]:
    """Return *result* as plain values, for JSON."""
    return {
        "backend": result.backend,
        "kept": result.passed,
        "promises": [{"what": check.guarantee, "broken": check.failure} for check in result.checks],
        "traits": dict(result.capabilities),
        "speeds": [throughput._asdict() for throughput in result.throughputs],
    }


def to_text(result: BackendCheckResult) -> list[str]:
    """Return *result* as lines for people."""
    lines = [
        f"FAILED: {check.guarantee}: {check.failure}" if check.failure else f"ok: {check.guarantee}"
        for check in result.checks
    ]
    lines += [f"{name}: {value}" for name, value in result.capabilities]
    if result.throughputs:
        lines.append(
            f"{'':4} {'value':>8} {'at once':>7} {'per second':>10} {'MB/s':>8} {'median ms':>9} {'worst ms':>9}"
        )
    lines += [
        f"{each.verb:4} {each.size:8} {each.at_once:7} {each.per_second:10.0f} {each.bytes_per_second / 1e6:8.1f} "
        f"{each.median_seconds * 1e3:9.2f} {each.worst_seconds * 1e3:9.2f}"
        for each in result.throughputs
    ]
    return lines
