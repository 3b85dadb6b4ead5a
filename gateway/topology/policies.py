"""Policies, the rules that choose a policy for a write, and the whole topology. Pure.

A rule matches writes by bucket, prefix, size and user. The first rule that matches a write chooses its policy; if none
matches, the policy is the one with the name `default`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from gateway.topology.places import BackendPlace, Cluster, Line

DEFAULT = "default"
"""The name of the policy for writes that no rule matches."""
NEAR = "near"
"""In `Policy.ack`: the backends of `keep` that are in the writer's cluster."""

RECHECK_SECONDS = 3_600.0
"""The default of `Topology.recheck_seconds`."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Which copies of a block must exist. `ack` and `keep` name backends; each backend in `ack` is in `keep` as
    well."""

    name: str
    ack: tuple[str, ...]
    """The backends that must have a copy before a write is answered. May contain `near`."""
    keep: tuple[str, ...]
    """The backends that must have a copy in the end."""
    ack_copies: int = 0
    """How many backends of `ack` must have a copy before the answer; 0: all of them."""
    within_seconds: float = 900.0
    """The time after the answer within which all copies should exist: the recovery point objective."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Writes that match all conditions are placed by *policy*. A condition with its default value matches
    everything."""

    policy: str
    bucket: str = "*"
    """A bucket name in which `*` matches any characters and `?` matches one character."""
    prefix: str = ""
    min_bytes: int = 0
    max_bytes: int | None = None
    user: str = ""

    def matches(self, bucket: str, key: bytes, size: int | None, user: str) -> bool:
        """Return whether the rule matches a write. *size* is None if it is not known in advance; None counts as
        larger than any size."""
        return (
            (not self.user or self.user == user)
            and (size is None or size >= self.min_bytes)
            and (self.max_bytes is None or (size is not None and size <= self.max_bytes))
            and (not self.prefix or key.startswith(self.prefix.encode()))
            and (self.bucket == "*" or glob(self.bucket).fullmatch(bucket) is not None)
        )

    def coverage(self) -> Callable[[Rule], bool]:
        """Return a function that tells whether this rule matches everything that another rule matches. True is certain;
        False may be wrong."""
        # a `?` covers one character or another `?`, and a `*` covers whatever the other pattern has there
        wider = _compiled(self.bucket, r"[^*]")

        def covers(other: Rule) -> bool:
            return (
                self.user in {"", other.user}
                and self.min_bytes <= other.min_bytes
                and (self.max_bytes is None or (other.max_bytes is not None and other.max_bytes <= self.max_bytes))
                and other.prefix.startswith(self.prefix)
                and wider.fullmatch(other.bucket) is not None
            )

        return covers


@lru_cache(maxsize=1_024)
def glob(pattern: str) -> re.Pattern[str]:
    """Return a regular expression that matches what the bucket name pattern matches."""
    return _compiled(pattern, ".")


def _compiled(pattern: str, one: str) -> re.Pattern[str]:
    """Compile a pattern. Matching takes linear time: between two stars the first match is as good as any later one, so
    atomic groups prevent backtracking."""
    first, *rest = ["".join(one if each == "?" else re.escape(each) for each in part) for part in pattern.split("*")]
    if not rest:
        return re.compile(first, re.DOTALL)
    *between, last = rest
    return re.compile(f"{first}{''.join(f'(?>.*?{part})' for part in between)}.*{last}", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Topology:
    """The whole topology, and the cluster of this process."""

    home: str
    clusters: Mapping[str, Cluster]
    lines: Mapping[frozenset[str], Line]
    """By the two clusters that each line joins."""
    backends: Mapping[str, BackendPlace]
    policies: Mapping[str, Policy]
    rules: tuple[Rule, ...] = ()
    recheck_seconds: float = RECHECK_SECONDS
    """How long the old copies of a moved block are kept before its new copies are verified again."""

    @property
    def default(self) -> Policy:
        """The policy for writes that no rule matches."""
        return self.policies[DEFAULT]

    def policy_for(self, bucket: str, key: bytes, size: int | None, user: str) -> Policy:
        """Return the policy for a write of *size* bytes to *key* by *user*. *size* is None if it is not known yet, as
        for a multipart upload; None counts as larger than any size."""
        for rule in self.rules:
            if rule.matches(bucket, key, size, user):
                return self.policies[rule.policy]
        return self.policies[DEFAULT]

    def kept_on(self, policy: Policy) -> tuple[str, ...]:
        """Return the backends that should have a copy in the end: `keep` without those that drain."""
        return tuple(name for name in policy.keep if not self.backends[name].drain)

    def acked_on(self, policy: Policy) -> tuple[str, ...]:
        """Return the backends to which a write in this cluster goes at once, in the order of `ack`, without those
        that drain."""
        named: dict[str, None] = {}
        for name in policy.ack:
            named |= dict.fromkeys(self._near(policy) if name == NEAR else [name])
        return tuple(name for name in named if not self.backends[name].drain)

    def _near(self, policy: Policy) -> list[str]:
        return [name for name in policy.keep if self.backends[name].cluster == self.home]

    def copies_before_answer(self, policy: Policy) -> int:
        """Return how many backends of `acked_on` must have a block before the write is answered."""
        return policy.ack_copies or len(self.acked_on(policy))
