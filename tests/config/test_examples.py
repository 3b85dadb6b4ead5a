"""The examples in conf/: sound, explained line by line, and walked through: what is written goes where they say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from gateway.config import load_text
from gateway.topology import Topology

CONF = Path(__file__).parents[2] / "conf"
HERE = Path("/site")
EXAMPLES = ("one-cluster-minio", "two-clouds", "four-clouds")
MIB = 1 << 20


class Walk(NamedTuple):
    """A write, and what becomes of it."""

    bucket: str
    key: bytes
    size: int | None
    user: str
    policy: str
    acked: tuple[str, ...]
    needed: int
    kept: tuple[str, ...]


WALKS = {
    "one-cluster-minio": [
        Walk("data", b"a/b", 5, "ada", "default", ("minio",), 1, ("minio",)),
        Walk("scratch-ada", b"a/b", 5, "ada", "scratch", ("scratch",), 1, ("scratch",)),
        Walk("my-scratch-ada", b"a/b", None, "ada", "default", ("minio",), 1, ("minio",)),
    ],
    "two-clouds": [
        Walk("data", b"a/b", 5, "ada", "default", ("ceph",), 1, ("ceph", "s3")),
        Walk("models", b"checkpoints/final/7", None, "ada", "checkpoints", ("ceph", "s3"), 2, ("ceph", "s3")),
        Walk("models", b"checkpoints/final/7", 3, "trainer", "checkpoints", ("ceph", "s3"), 2, ("ceph", "s3")),
        Walk("models", b"checkpoints/7", None, "ada", "default", ("ceph",), 1, ("ceph", "s3")),
        Walk("scratch-1", b"x", 5, "ada", "scratch", ("ceph",), 1, ("ceph",)),
        Walk("data", b"x", MIB, "trainer", "scratch", ("ceph",), 1, ("ceph",)),
        Walk("data", b"x", MIB + 1, "trainer", "default", ("ceph",), 1, ("ceph", "s3")),
        Walk("data", b"x", None, "trainer", "default", ("ceph",), 1, ("ceph", "s3")),
    ],
    "four-clouds": [
        Walk("data", b"a/b", 5, "ada", "default", ("ceph",), 1, ("ceph", "minio")),
        Walk("models", b"checkpoints/1", None, "ada", "quorum", ("ceph", "minio", "aws"), 2, ("ceph", "minio", "aws")),
        Walk("models", b"final", 5, "ada", "default", ("ceph",), 1, ("ceph", "minio")),
        Walk("archive-2026", b"x", 5, "ada", "archive", ("aws",), 1, ("aws", "vault")),
        Walk("logs", b"x", 64 * MIB, "ada", "scratch", ("ceph",), 1, ("ceph",)),
        Walk("logs", b"x", None, "ada", "archive", ("aws",), 1, ("aws", "vault")),
    ],
}


def topology(name: str) -> Topology:
    return load_text((CONF / f"{name}.toml").read_text(), HERE, name).topology(HERE)


@pytest.mark.parametrize(("name", "walk"), [(name, walk) for name in EXAMPLES for walk in WALKS[name]])
def test_what_is_written_goes_where_the_example_says(name: str, walk: Walk) -> None:
    found = topology(name)
    policy = found.policy_for(walk.bucket, walk.key, walk.size, walk.user)
    assert policy.name == walk.policy
    assert found.acked_on(policy) == walk.acked
    assert found.copies_before_answer(policy) == walk.needed
    assert found.kept_on(policy) == walk.kept


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_policy_of_an_example_is_walked_through(name: str) -> None:
    assert set(topology(name).policies) == {walk.policy for walk in WALKS[name]}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_has_no_more_backends_and_clusters_than_it_uses(name: str) -> None:
    found = topology(name)
    assert {each for policy in found.policies.values() for each in policy.keep} == set(found.backends)
    assert {each.cluster for each in found.backends.values()} == set(found.clusters)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_explains_what_it_names_for_the_first_time(name: str) -> None:
    seen: set[str] = set()
    for line in (CONF / f"{name}.toml").read_text().splitlines():
        setting = re.match(r"(\w+) =", line)
        if setting and setting[1] not in seen:
            seen.add(setting[1])
            assert "#" in line or setting[1] in {"cluster", "secret_key_env"}, line


def test_lines_mean_what_they_say() -> None:
    line = topology("two-clouds").lines[frozenset({"gpu", "aws"})]
    assert (line.latency_seconds, line.bytes_per_second, line.price_per_gib) == (0.03, 1.25e9, 0.02)
    assert len(topology("four-clouds").lines) == 4


@pytest.mark.parametrize("name", EXAMPLES)
def test_no_secret_stands_in_an_example(name: str) -> None:
    for place in topology(name).backends.values():
        assert place.s3 is None or not re.search(r"[A-Za-z0-9/+]{40}", repr(place))
