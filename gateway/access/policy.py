"""Policies in memory, and their evaluation. Pure.

Source: the IAM user guide, "Policy evaluation logic".
"""

from __future__ import annotations

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

    @property
    def is_public(self) -> bool:
        """Whether the policy allows something to anybody, without a condition that limits the clients.

        Source: the S3 user guide, "Blocking public access to your Amazon S3 storage", "The meaning of public"."""
        return any(_is_public(statement) for statement in self.allowing)

    def denies(self, request: AccessRequest) -> bool:
        """Whether a statement denies *request*. That outweighs all statements that allow it."""
        return any(statement.applies(request) for statement in self.denying)

    def allows(self, request: AccessRequest) -> bool:
        """Whether a statement allows *request*, which no statement denies."""
        return any(statement.applies(request) for statement in self.allowing)


_PUBLIC_PREFIX = {4: 8, 6: 32}
"""A network with a shorter prefix than this contains so many addresses that it limits nobody, by IP version."""
_USER_KEYS = frozenset({"aws:username", "aws:userid"})


def _is_public(statement: Statement) -> bool:
    principals = statement.principals
    if not (principals.everyone or principals.inverted):
        return False
    return not any(_limits_clients(condition) for condition in statement.conditions)


def _limits_clients(condition: Condition) -> bool:
    if condition.negated or condition.if_exists or condition.null is not None or condition.quantifier == "all":
        return False
    if condition.networks:
        return all(network.prefixlen >= _PUBLIC_PREFIX[network.version] for network in condition.networks)
    return condition.key in _USER_KEYS and condition.fixed
