"""Every regular expression that the packages compile takes linear time, whatever it is matched against.

Each unbounded repeat of each pattern is attacked: what leads to it, then many of what it takes, then what cannot
follow.
Compared is the processor time of one length and of four times that length, so no machine is too slow for this test.
"""

from __future__ import annotations

import ast
import importlib
import math
import pkgutil
import re
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

import backends
import gateway
import s3api

PACKAGES = (s3api, gateway, backends)
FULL_LENGTH = 64 << 10
MEASURABLE_SECONDS = 0.004
"""Below this a time is noise. What takes less at the full length cannot block a worker either."""
LINEAR, QUADRATIC = 4.0, 16.0
"""How much longer four times the length takes."""
ROUNDS = 6
PROBES = " \t\"',-./019aAfz_%<>=?~:;*&+@[]\x00é"
TAILS = ("\x00", '"', "x")
_parser, _constants = re._parser, re._constants  # type: ignore[attr-defined]
REPEATS = {_constants.MAX_REPEAT, _constants.MIN_REPEAT, _constants.POSSESSIVE_REPEAT}


def patterns() -> dict[str, re.Pattern[Any]]:
    """The patterns that are constants of modules, under `module.NAME`."""
    found: dict[int, tuple[str, re.Pattern[Any]]] = {}
    for package in PACKAGES:
        for each in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if each.name.endswith("__main__"):
                continue
            for name, value in vars(importlib.import_module(each.name)).items():
                for pattern in held(value):
                    found.setdefault(id(pattern), (f"{each.name}.{name}", pattern))
    return {f"{name}: {pattern.pattern!r}": pattern for name, pattern in found.values()}


def held(value: object) -> Iterator[re.Pattern[Any]]:
    """The patterns in a constant, which may be a container of them."""
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from held(each)
    elif isinstance(value, list | tuple | set | frozenset):
        for each in value:
            yield from held(each)


def sample(node: tuple[Any, Any]) -> str:
    """Some short text that *node* of a parsed pattern matches."""
    kind, value = node
    if kind is _constants.LITERAL:
        return chr(value)
    if kind is _constants.NOT_LITERAL:
        return "b" if value == ord("a") else "a"
    if kind is _constants.ANY:
        return "a"
    if kind is _constants.IN:
        return next(char for char in [*PROBES, *map(chr, range(256))] if matches([node], char))
    if kind is _constants.BRANCH:
        return "".join(map(sample, value[1][0]))
    if kind is _constants.SUBPATTERN:
        return "".join(map(sample, value[3]))
    if kind is _constants.ATOMIC_GROUP:
        return "".join(map(sample, value))
    if kind in REPEATS:
        return "".join(map(sample, value[2])) * value[0]
    return ""


def matches(nodes: list[tuple[Any, Any]], text: str, state: Any = None) -> bool:
    """Whether parsed *nodes*, of a pattern with this *state*, match all of *text*."""
    tree = _parser.SubPattern(state or _parser.State(), nodes)
    return re._compiler.compile(tree).fullmatch(text) is not None  # type: ignore[attr-defined]


def repeats(nodes: Any, before: str = "") -> Iterator[tuple[str, str]]:
    """Each unbounded repeat: what leads to it, and one of what it repeats."""
    for node in nodes:
        kind, value = node
        if kind in REPEATS:
            if value[1] > 100:
                taken = {char for char in PROBES if matches(value[2].data, char, value[2].state)}
                for pump in [*sorted(taken)[:2], sample((_constants.SUBPATTERN, (None, 0, 0, value[2])))]:
                    yield before, pump or " "
            yield from repeats(value[2], before)
        elif kind is _constants.BRANCH:
            for branch in value[1]:
                yield from repeats(branch, before)
        elif kind is _constants.SUBPATTERN:
            yield from repeats(value[3], before)
        elif kind is _constants.ATOMIC_GROUP:
            yield from repeats(value, before)
        before += sample(node)


def attacks(pattern: re.Pattern[Any]) -> Iterator[tuple[str, str, str]]:
    """(head, pump, tail): the attack of length n is the head, the pump as often as it takes, and the tail."""
    source = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    found = dict.fromkeys(repeats(_parser.parse(source, pattern.flags & ~re.UNICODE)))
    for before, pump in found:
        for tail in TAILS:
            yield before, pump, tail
        if before:
            yield "", before + pump, "\x00"
            yield "", before, "\x00"


def is_quadratic(run: Callable[[Any], Any], text: Callable[[int], Any]) -> bool:
    """Whether four times the length takes clearly more than four times the time, as soon as it can be measured."""
    length = 1 << 10
    while length <= FULL_LENGTH:
        if seconds(run, text(length)) > MEASURABLE_SECONDS:
            return grows(run, text(length), text(length * 4))
        length *= 4
    return False


def grows(run: Callable[[Any], Any], short: Any, long: Any) -> bool:
    """Whether *long* takes clearly more than four times as long as *short*, however often it is measured. The least
    of several times is what others disturbed least."""
    before = after = math.inf
    for _ in range(ROUNDS):
        before, after = min(before, seconds(run, short)), min(after, seconds(run, long))
        if after < (LINEAR * QUADRATIC) ** 0.5 * before:
            return False
    return True


def seconds(run: Callable[[Any], Any], text: str | bytes) -> float:
    began = time.thread_time()
    run(text)
    return time.thread_time() - began


def methods(name: str) -> set[str]:
    """With which methods the source uses the constant of this name; all that scan where it is not clear."""
    used = {method for owner, method in uses() if owner == name}
    return used or {"match", "fullmatch", "search", "finditer"}


@cache
def trees() -> list[tuple[Path, ast.Module]]:
    """The sources, parsed."""
    paths = [path for package in PACKAGES for path in sorted(Path(package.__path__[0]).rglob("*.py"))]
    return [(path, ast.parse(path.read_text())) for path in paths]


@cache
def uses() -> set[tuple[str, str]]:
    """Each constant of the sources with each method of patterns that is called on it."""
    return {
        (node.value.id, node.attr)
        for _, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        and node.attr in {"match", "fullmatch", "search", "finditer", "sub", "split", "findall"}
    }  # fmt: skip


def slow_attacks(pattern: re.Pattern[Any], used: set[str]) -> Iterator[tuple[str, tuple[str, str, str]]]:
    """The methods and the attacks where matching takes more than linear time."""
    runs: dict[str, Callable[[Any], Any]] = {method: getattr(pattern, method) for method in used}
    if "finditer" in runs:
        runs["finditer"] = pattern.findall
    if "sub" in runs:
        runs["sub"] = lambda each: pattern.sub(type(each)(), each)
    for attack in dict.fromkeys(attacks(pattern)):
        for method, run in runs.items():
            if is_quadratic(run, partial(written, attack, isinstance(pattern.pattern, str))):
                yield method, attack


def written(attack: tuple[str, str, str], is_text: bool, length: int) -> str | bytes:
    """The attack at about this length."""
    head, pump, tail = attack
    found = head + pump * (length // len(pump)) + tail
    return found if is_text else found.encode("latin-1")


PATTERNS = patterns()
TRUSTED = {"gateway.namespace.read.listing._NAMES"}
"""It reads names out of the journal, each of which ends with its slash."""
IN_FUNCTIONS = {("policies.py", "_compiled"), ("checking.py", "_bucket"), ("patterns.py", "_segment")}
"""The globs of rules, which are built of atomic groups and have a test of their own, an endpoint in the config, and the
parts of access policies between wildcards, which have a fixed length and a limit."""


@pytest.mark.parametrize("name", PATTERNS, ids=ascii)
def test_a_pattern_takes_linear_time(name):
    constant = name.partition(":")[0]
    slow = next(slow_attacks(PATTERNS[name], methods(constant.rpartition(".")[2])), None)
    assert constant in TRUSTED or slow is None


def test_the_patterns_that_see_requests_are_among_those_attacked():
    attacked = " ".join(PATTERNS)
    for name in ("s3api.format.conditions._ETAG", "s3api.format.conditions._RANGE", "s3api.format.authority._AUTHORITY",
                 "gateway.identity.canonical._SPACES", "backends.s3.errors._FIELD"):  # fmt: skip
        assert name in attacked
    assert sum(1 for pattern in PATTERNS.values() if list(attacks(pattern))) > 20


@pytest.mark.parametrize(
    ("pattern", "used"),
    [
        (r'\s*(?:(?P<weak>W/)?"(?P<quoted>[^"]*)"|(?P<bare>[^\s,"]+))\s*(?:,|$)', "finditer"),
        (r"\s*bytes\s*=\s*(?:(\d{1,19})\s*-\s*(\d{1,19})?|-\s*(\d{1,19}))\s*", "fullmatch"),
        (r"(a|b)*a*c", "fullmatch"),
        (r"=\?[^?]*\?[qb]\?.*?\?=", "search"),
        (r"\s+$", "search"),
    ],
)
def test_the_attack_finds_what_is_slow(pattern, used):
    assert next(slow_attacks(re.compile(pattern), {used}), None) is not None


def test_no_function_writes_a_pattern_of_its_own():
    """What is compiled in a function is not attacked above."""
    for path, tree in trees():
        for function in ast.walk(tree):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for node in ast.walk(function):
                if (
                    isinstance(node, ast.Attribute)
                    and isinstance(node.value, ast.Name)
                    and node.value.id == "re"
                    and node.attr in {"compile", "match", "fullmatch", "search", "sub", "split", "findall", "finditer"}
                ):
                    assert (path.name, function.name) in IN_FUNCTIONS, f"{path}:{node.lineno}"
