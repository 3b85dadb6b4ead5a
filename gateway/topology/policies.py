"""Policies, the rules that pick one, and all of the topology together. Pure.

A rule says by bucket, prefix, size and user what it is for; the first that matches picks the policy, and where none
does it is the one called `default`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from gateway.topology.places import BackendPlace, Cluster, Line

DEFAULT = "default"
"""The policy of what no rule matches."""
NEAR = "near"
"""Stands in `Policy.ack` for those of `keep` that stand in the writer's cluster."""

RECHECK_SECONDS = 3_600.0
"""`Topology.recheck_seconds`, if nothing says otherwise."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Which copies must exist. Both name backends; what `ack` names is in `keep` as well."""

    name: str
    ack: tuple[str, ...]
    """Of which copies must exist before a write is answered; may hold `near`."""
    keep: tuple[str, ...]
    """The copies that must exist in the end."""
    ack_copies: int = 0
    """How many of `ack` must have it before the answer; 0: all."""
    within_seconds: float = 900.0
    """How long after the answer they should all exist: the recovery point that is measured."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What is written there, so large, by that user, is placed by *policy*. What says nothing matches everything."""

    policy: str
    bucket: str = "*"
    """A name in which `*` stands for any characters and `?` for one."""
    prefix: str = ""
    min_bytes: int = 0
    max_bytes: int | None = None
    user: str = ""

    def matches(self, bucket: str, key: bytes, size: int | None, user: str) -> bool:
        """*size*: None where nobody knows it beforehand, which counts as larger than any."""
        return (
            (not self.user or self.user == user)
            and (size is None or size >= self.min_bytes)
            and (self.max_bytes is None or (size is not None and size <= self.max_bytes))
            and (not self.prefix or key.startswith(self.prefix.encode()))
            and (self.bucket == "*" or glob(self.bucket).fullmatch(bucket) is not None)
        )

    def coverage(self) -> Callable[[Rule], bool]:
        """Whether this matches all that another one matches, to be asked of many. A True is certain; a False may only
        not see it."""
        # each `?` for one character or another `?`, each `*` for whatever the other pattern has there
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
    """What *pattern* matches."""
    return _compiled(pattern, ".")


def _compiled(pattern: str, one: str) -> re.Pattern[str]:
    """Between two stars the first place that fits is as good as any later one, so nothing is ever tried again: no
    pattern makes a match slow."""
    first, *rest = ["".join(one if each == "?" else re.escape(each) for each in part) for part in pattern.split("*")]
    if not rest:
        return re.compile(first, re.DOTALL)
    *between, last = rest
    return re.compile(f"{first}{''.join(f'(?>.*?{part})' for part in between)}.*{last}", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Topology:
    """All of it, and the cluster in which this process stands."""

    home: str
    clusters: Mapping[str, Cluster]
    lines: Mapping[frozenset[str], Line]
    """By the two clusters that they join."""
    backends: Mapping[str, BackendPlace]
    policies: Mapping[str, Policy]
    rules: tuple[Rule, ...] = ()
    recheck_seconds: float = RECHECK_SECONDS
    """How long the old copies of a block that was moved are kept before its new copies are asked for again."""

    @property
    def default(self) -> Policy:
        """The policy of what no rule matches."""
        return self.policies[DEFAULT]

    def policy_for(self, bucket: str, key: bytes, size: int | None, user: str) -> Policy:
        """The policy under which *user* writes *size* bytes as *key*; *size* None: nobody knows yet, as with what is
        uploaded in parts, which counts as larger than any."""
        for rule in self.rules:
            if rule.matches(bucket, key, size, user):
                return self.policies[rule.policy]
        return self.policies[DEFAULT]

    def kept_on(self, policy: Policy) -> tuple[str, ...]:
        """Where copies of *policy* should be in the end: its `keep` without those that drain."""
        return tuple(name for name in policy.keep if not self.backends[name].drain)

    def acked_on(self, policy: Policy) -> tuple[str, ...]:
        """Where a write of *policy* in this cluster goes at once, in the order of `ack`, without those that drain."""
        named: dict[str, None] = {}
        for name in policy.ack:
            named |= dict.fromkeys(self._near(policy) if name == NEAR else [name])
        return tuple(name for name in named if not self.backends[name].drain)

    def _near(self, policy: Policy) -> list[str]:
        return [name for name in policy.keep if self.backends[name].cluster == self.home]

    def copies_before_answer(self, policy: Policy) -> int:
        """How many of `acked_on` must have a block before the write is answered."""
        return policy.ack_copies or len(self.acked_on(policy))
