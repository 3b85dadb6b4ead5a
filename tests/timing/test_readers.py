"""Which modules read the machine's clocks or hold durations themselves: none beside those that are named here."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.endpoint import ROOT

READS = {"time", "time_ns", "monotonic", "monotonic_ns", "clock_gettime", "clock_gettime_ns", "localtime"}
"""Of the module `time`. `perf_counter` is left out: it only measures how long something took, for metrics."""
NOW = {"now", "utcnow", "today"}
"""Of `datetime`."""
DURATION = re.compile(
    r"(^|_)(seconds|secs|ms|millis|ns|minutes|hours|days|timeout|deadline|pause|interval|delay|s)(_|$)", re.IGNORECASE
)
SQL = re.compile(r"PRAGMA \w*timeout *= *\d")
WAITS = {"sleep", "timeout", "call_later", "wait_for", "settimeout"}
"""Functions and methods that take seconds."""

TIMING = {"backends/timing.py", "gateway/timing/clock.py", "gateway/timing/durations.py"}
CHOSEN = {
    "backends/testing/faulty.py",  # what a test injects
    "backends/retry.py",  # `within_s`: the deadline of the backend, which the config has
    "backends/s3/backend.py",  # `timeout_s`: a share of that deadline
    "gateway/cli/backends.py",  # the default of the option `--seconds`
    "gateway/cli/maintenance.py",  # the defaults of the options `--keep-days` and `--keep-newer-days`
    "gateway/config/models.py",  # defaults and bounds of the config's fields
    "gateway/config/topology_sections.py",  # the same
    "gateway/journal/whereabouts.py",  # the default of `journal.fork_grace_hours`
    "gateway/journal/server/server.py",  # the default of `journal.lease_seconds`
    "gateway/posix/rpc/endpoint.py",  # the default of the option `timeout` of file systems
    "gateway/topology/policies.py",  # the default of `recheck_seconds` of a policy
    "s3api/settings.py",  # the defaults of the config's `server` section
}
"""Defaults of what an operator or the caller of a library chooses."""
FIXED = {
    "gateway/identity/sigv4.py",  # the skew of clocks and the longest validity that AWS defines
    "gateway/posix/fsspec/listing_ops.py",  # the latter again
}
"""Numbers that a protocol fixes."""
RULES = {
    "gateway/journal/server/batch.py",  # which steps of the wall clock are smoothed in what people see
    "gateway/journal/site_clock.py",  # how the site's clock goes on over restarts; each process computes it
    "gateway/metrics/instruments.py",  # the bounds of histograms
}
"""Numbers that belong to the meaning of what is stored or shown. All processes of a site must agree on them, and nobody
waits for them."""
MACHINE = {
    "backends/s3/credentials.py",  # until when a key is used, which `s3_signing` compares
    "backends/s3/signing.py",  # the date of a signature, which the server compares with its own clock
}
"""Modules that need the machine's wall clock itself: with another one no S3 server would answer."""
UNITS = {"SECOND_NS", "DAY_SECONDS"}
"""Names of constants that convert one unit to another."""


def _findings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The lines of a module that read a clock or hold a duration, and what they do."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="time"), attr=name) if name in READS:
                yield node.lineno, f"reads time.{name}"
            case ast.ImportFrom(module="time", names=names) if READS & {each.name for each in names}:
                yield node.lineno, "imports a clock"
            case ast.Import(names=names) if any(each.name == "time" and each.asname for each in names):
                yield node.lineno, "imports time under another name"
            case ast.Call(func=ast.Attribute(value=ast.Name(id="datetime" | "date"), attr=name)) if name in NOW:
                yield node.lineno, f"reads datetime.{name}"
            case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)) if name in WAITS:
                if any(_is_duration(each) for each in [*node.args, *(each.value for each in node.keywords)]):
                    yield node.lineno, f"waits a number of seconds: {name}"
            case ast.Call(keywords=keywords):
                for each in keywords:
                    if each.arg and DURATION.search(each.arg) and _is_duration(each.value):
                        yield node.lineno, f"gives the number {each.arg}"
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if _holds(name, value):
                yield node.lineno, f"holds {name}"
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value) if _holds(name, value):
                yield node.lineno, f"holds {name}"
            case ast.Constant(value=str(text)) if SQL.search(text):
                yield node.lineno, "has a number in SQL"
            case ast.arguments():
                for argument, default in _defaults(node):
                    if _holds(argument.arg, default):
                        yield argument.lineno, f"has a default of {argument.arg}"


def _defaults(node: ast.arguments) -> Iterator[tuple[ast.arg, ast.expr]]:
    plain = [*node.posonlyargs, *node.args]
    yield from zip(plain[len(plain) - len(node.defaults) :], node.defaults, strict=True)
    yield from ((name, default) for name, default in zip(node.kwonlyargs, node.kw_defaults, strict=True) if default)


def _holds(name: str, value: ast.expr) -> bool:
    return name not in UNITS and DURATION.search(name) is not None and _is_duration(value)


def _is_duration(value: ast.expr) -> bool:
    """Whether it is a number, or several, other than 0; a computation with numbers alone counts as one."""
    try:
        found = eval(compile(ast.Expression(value), "", "eval"), {"__builtins__": {}})
    except Exception:
        return False
    numbers = found if isinstance(found, tuple) else (found,)
    return any(isinstance(each, int | float) and not isinstance(each, bool) and each for each in numbers)


def _found() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for room in ("gateway", "backends", "s3api"):
        for path in sorted((ROOT / room).rglob("*.py")):
            name = str(path.relative_to(ROOT))
            if lines := [f"{name}:{line} {what}" for line, what in _findings(ast.parse(path.read_text()))]:
                found[name] = lines
    return found


def test_no_other_module_reads_a_clock_or_holds_a_duration() -> None:
    found = _found()
    named = TIMING | CHOSEN | FIXED | RULES | MACHINE
    unnamed = "\n".join(line for name, lines in found.items() if name not in named for line in lines)
    assert not unnamed, f"take durations and clocks from a Timing (gateway/timing):\n{unnamed}"
    assert named - found.keys() == set(), "these need not be named any more"


@pytest.mark.parametrize(
    "text",
    [
        "import time\nnow = time.time()",
        "import time as t",
        "from time import monotonic",
        "from datetime import datetime\nat = datetime.now()",
        "LOOK_SECONDS = 5",
        "LOOK_SECONDS: float = 24 * 3_600",
        "PAUSES_S = (1, 2)",
        "BUSY_MS = 1000",
        "class A:\n    wait_seconds: float = 2.0",
        "def f(*, clock=time.monotonic): ...",
        "def f(a, wait_seconds: float = 0.5): ...",
        "async def f():\n    await asyncio.sleep(0.02)",
        "async def f():\n    async with asyncio.timeout(5): ...",
        "loop.call_later(1.0, look)",
        "connect(timeout=5.0)",
        "connection.execute('PRAGMA busy_timeout = 2000')",
    ],
)
def test_a_clock_or_a_duration_is_found_in_every_form(text: str) -> None:
    assert list(_findings(ast.parse(text)))


@pytest.mark.parametrize(
    "text",
    [
        "await asyncio.sleep(0)",
        "await clock.sleep(timing.look_seconds)",
        "began = time.perf_counter()",
        "at_ns = 0",
        "text = time.strftime('%Y', time.gmtime(at))",
        "SECONDS = histogram('x')",
    ],
)
def test_what_takes_no_time_of_its_own_is_not_found(text: str) -> None:
    assert not list(_findings(ast.parse(text)))
