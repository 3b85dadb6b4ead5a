"""Policies in memory, and their evaluation. Pure.

Source: the IAM user guide, "Policy evaluation logic".
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, collapse_addresses
from typing import NamedTuple

from gateway.access.conditions import Condition
from gateway.access.patterns import Pattern
from gateway.access.request import AccessRequest


class Principals(NamedTuple):
    """The users that a statement is about."""

    everyone: bool
    """`*`: also anonymous requests."""
    users: frozenset[int]
    inverted: bool = False
    """NotPrincipal: everyone else."""

    def include(self, user_id: int) -> bool:
        """Whether the user with this id is one of them; 0 is that of an anonymous request."""
        return (self.everyone or (user_id != 0 and user_id in self.users)) != self.inverted


class Statement(NamedTuple):
    """One compiled statement."""

    principals: Principals
    actions: frozenset[str]
    """The actions of `actions.ACTIONS` that it is about."""
    resources: tuple[Pattern, ...]
    inverted_resources: bool
    conditions: tuple[Condition, ...]

    def applies(self, request: AccessRequest) -> bool:
        """Whether the statement is about *request*. The cheapest tests come first."""
        if not self.principals.include(request.user_id):
            return False
        if request.action not in self.actions:
            return False
        resource, value_of = request.resource, request.value
        if any(each.matches(resource, value_of) for each in self.resources) == self.inverted_resources:
            return False
        return all(condition.holds(request) for condition in self.conditions)


class Policy(NamedTuple):
    """A compiled policy document."""

    denying: tuple[Statement, ...]
    allowing: tuple[Statement, ...]

    is_public: bool
    """Whether the policy allows something to anybody, without a condition that limits the clients (S3 user guide,
    "Blocking public access to your Amazon S3 storage", "The meaning of public")."""

    def denies(self, request: AccessRequest) -> bool:
        """Whether a statement denies *request*. That outweighs all statements that allow it."""
        return any(statement.applies(request) for statement in self.denying)

    def allows(self, request: AccessRequest) -> bool:
        """Whether a statement allows *request*, which no statement denies."""
        return any(statement.applies(request) for statement in self.allowing)


_ADDRESSES_MAX = {4: 1 << 24, 6: 1 << 96}
"""Networks with more addresses than this together limit nobody, by IP version: those of one /8 or /32."""
_USER_KEYS = frozenset({"aws:username", "aws:userid"})


def make_policy(denying: Sequence[Statement], allowing: Sequence[Statement]) -> Policy:
    """Return the policy of these statements."""
    return Policy(tuple(denying), tuple(allowing), any(map(_is_public, allowing)))


def _is_public(statement: Statement) -> bool:
    principals = statement.principals
    if not (principals.everyone or principals.inverted):
        return False
    return not any(_limits_clients(condition) for condition in statement.conditions)


def _limits_clients(condition: Condition) -> bool:
    if condition.negated or condition.if_exists or condition.null is not None or condition.quantifier == "all":
        return False
    if condition.networks:
        return all(_count(condition.networks, version) <= most for version, most in _ADDRESSES_MAX.items())
    return condition.key in _USER_KEYS and condition.fixed


def _count(networks: Sequence[IPv4Network | IPv6Network], version: int) -> int:
    """Return how many addresses of an IP version the networks contain."""
    if version == 4:
        return sum(each.num_addresses for each in collapse_addresses(n for n in networks if isinstance(n, IPv4Network)))
    return sum(each.num_addresses for each in collapse_addresses(n for n in networks if isinstance(n, IPv6Network)))
