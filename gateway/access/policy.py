"""Policies in memory, and their evaluation. Pure.

Source: the IAM user guide, "Policy evaluation logic".
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from gateway.access.conditions import Condition
from gateway.access.patterns import Pattern
from gateway.access.request import AccessRequest


class Decision(Enum):
    """What policies say about a request."""

    DENY = "deny"
    """At least one statement denies it."""
    ALLOW = "allow"
    """At least one statement allows it, and none denies it."""
    SILENT = "silent"
    """No statement applies."""


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

    principals: Principals | None
    """None in the policy of a user, which is about that user."""
    actions: frozenset[str]
    """The actions of `actions.ACTIONS` that it is about."""
    resources: tuple[Pattern, ...]
    inverted_resources: bool
    conditions: tuple[Condition, ...]

    def applies(self, request: AccessRequest) -> bool:
        """Whether the statement is about *request*. The cheapest tests come first."""
        if self.principals is not None and not self.principals.include(request.user_id):
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

    def decide(self, request: AccessRequest) -> Decision:
        """Decide about *request*. A statement that denies outweighs all that allow."""
        if self.denies(request):
            return Decision.DENY
        if any(statement.applies(request) for statement in self.allowing):
            return Decision.ALLOW
        return Decision.SILENT

    def denies(self, request: AccessRequest) -> bool:
        """Whether a statement denies *request*."""
        return any(statement.applies(request) for statement in self.denying)


_PUBLIC_PREFIX = {4: 8, 6: 32}
"""A network with a shorter prefix than this contains so many addresses that it limits nobody, by IP version."""
_USER_KEYS = frozenset({"aws:username", "aws:userid"})


def _is_public(statement: Statement) -> bool:
    principals = statement.principals
    if principals is None or not (principals.everyone or principals.inverted):
        return False
    return not any(_limits_clients(condition) for condition in statement.conditions)


def _limits_clients(condition: Condition) -> bool:
    if condition.negated or condition.if_exists or condition.null is not None or condition.quantifier == "all":
        return False
    if condition.networks:
        return all(network.prefixlen >= _PUBLIC_PREFIX[network.version] for network in condition.networks)
    return condition.key in _USER_KEYS and condition.fixed
