"""Condition operators of policies. Pure.

Source: the IAM user guide, "IAM JSON policy elements: Condition operators".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import lru_cache, partial
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, NamedTuple

from gateway.access.patterns import Pattern
from gateway.access.request import EXISTING_TAG, REQUEST_TAG, AccessRequest

KEYS = frozenset(
    {
        "aws:currenttime", "aws:epochtime", "aws:principaltype", "aws:referer", "aws:securetransport", "aws:sourceip",
        "aws:useragent", "aws:userid", "aws:username",
        "s3:authtype", "s3:delimiter", "s3:max-keys", "s3:prefix", "s3:requestobjecttagkeys", "s3:signatureversion",
        "s3:versionid", "s3:x-amz-acl", "s3:x-amz-content-sha256", "s3:x-amz-copy-source",
        "s3:x-amz-metadata-directive", "s3:x-amz-server-side-encryption", "s3:x-amz-storage-class",
    }
)  # fmt: skip
"""The condition keys that requests have, in lower case, besides those of tags. A policy with another key is rejected:
its condition would silently never, or always, hold."""

Compare = Callable[[str, AccessRequest], bool]
"""Whether one value of a key meets one value of the policy."""

_NUMBER = re.compile(r"[+-]?[0-9]{1,18}(\.[0-9]{1,9})?")


class Condition(NamedTuple):
    """One condition operator with one key."""

    key: str
    compare: tuple[Compare, ...]
    """For each value that the policy lists."""
    negated: bool
    """It holds if no listed value is met."""
    if_exists: bool
    quantifier: str
    """`any` or `all` for ForAnyValue and ForAllValues; otherwise empty."""
    null: bool | None = None
    """For the operator Null: whether the key must be absent."""
    networks: tuple[IPv4Network | IPv6Network, ...] = ()
    """For IpAddress: the listed networks."""
    fixed: bool = False
    """Whether each listed value is a text without wildcards and variables."""

    def holds(self, request: AccessRequest) -> bool:
        """Whether the condition is met by *request*."""
        values = request.values(self.key)
        if self.null is not None:
            return (values is None) == self.null
        if not values:
            negated = self.negated and self.quantifier != "any"
            return self.if_exists or negated or self.quantifier == "all"
        met = [any(compare(value, request) for compare in self.compare) for value in values]
        if self.quantifier == "all":
            return not any(met) if self.negated else all(met)
        if self.quantifier == "any":
            return not all(met) if self.negated else any(met)
        return any(met) != self.negated


def compile_condition(operator: str, key: str, listed: Sequence[str]) -> Condition:
    """Compile one operator with one key and the values that the policy lists for it.

    Raises `ValueError` for an unknown operator or key, and for a value that is not of the operator's type."""
    name, quantifier = operator, ""
    for prefix, meaning in (("ForAnyValue:", "any"), ("ForAllValues:", "all")):
        if name.startswith(prefix):
            name, quantifier = name.removeprefix(prefix), meaning
    if_exists = name.endswith("IfExists") and name != "NullIfExists"
    name = name.removesuffix("IfExists") if if_exists else name
    key = _check_key(key)
    if name == "Null":
        if len(listed) != 1 or listed[0].lower() not in ("true", "false"):
            raise ValueError("the value of Null must be true or false")
        return Condition(key, (), False, False, quantifier, null=listed[0].lower() == "true")
    found = _OPERATORS.get(name)
    if found is None:
        raise ValueError(f"the condition operator {operator} is not supported")
    make, negated = found
    if name.endswith("IpAddress") and key != "aws:sourceip":
        raise ValueError(f"{operator} is supported only with aws:SourceIp")
    networks = tuple(map(_network, listed)) if name == "IpAddress" else ()
    fixed = name in ("StringEquals", "StringEqualsIgnoreCase") and not any("${" in each for each in listed)
    return Condition(key, tuple(map(make, listed)), negated, if_exists, quantifier, networks=networks, fixed=fixed)


def _check_key(key: str) -> str:
    lower = key.lower()
    for prefix in (EXISTING_TAG, REQUEST_TAG):
        if lower.startswith(prefix) and len(key) > len(prefix):
            return prefix + key[len(prefix) :]
    if lower not in KEYS:
        raise ValueError(f"the condition key {key} is not supported")
    return lower


def _text(listed: str, *, fold: bool = False, wildcards: bool = False) -> Compare:
    pattern = Pattern(listed.lower() if fold else listed, wildcards=wildcards)
    if fold:
        return lambda value, request: pattern.matches(value.lower(), _lower_value(request))
    return lambda value, request: pattern.matches(value, request.value)


def _lower_value(request: AccessRequest) -> Callable[[str], str | None]:
    def value(key: str) -> str | None:
        found = request.value(key)
        return None if found is None else found.lower()

    return value


def _number(text: str) -> float:
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{text!r} is not a number")
    return float(text)


def _date(text: str) -> float:
    """Return a time as seconds since 1970. Source: ISO 8601 as in the W3C's note on dates, or seconds since 1970."""
    if _NUMBER.fullmatch(text) and len(text) != len("2026"):
        return float(text)
    try:
        at = datetime.fromisoformat({4: f"{text}-01-01", 7: f"{text}-01"}.get(len(text), text))
    except ValueError:
        raise ValueError(f"{text!r} is not a date such as 2026-11-24T00:00:00Z") from None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text.lower() == "true"


def _ordered(parse: Callable[[str], Any], meets: Callable[[Any, Any], bool], listed: str) -> Compare:
    expected = parse(listed)

    def compare(value: str, _request: AccessRequest) -> bool:
        try:
            return meets(parse(value), expected)
        except ValueError:
            return False

    return compare


def _network(text: str) -> IPv4Network | IPv6Network:
    try:
        network = ip_network(text, strict=False)
    except ValueError:
        raise ValueError(f"{text!r} is not an IP address or a network such as 10.0.0.0/8") from None
    mapped = network.network_address.ipv4_mapped if isinstance(network, IPv6Network) else None
    return network if mapped is None else IPv4Network((mapped, max(0, network.prefixlen - 96)))


def _in_network(listed: str) -> Compare:
    network = _network(listed)

    def compare(value: str, _request: AccessRequest) -> bool:
        address = _address(value)
        return address is not None and address in network

    return compare


@lru_cache(1024)
def _address(text: str) -> IPv4Address | IPv6Address | None:
    """Return an address, of version 4 if it is one that is mapped into version 6; None if *text* is none."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def _equal(one: Any, other: Any) -> bool:
    return bool(one == other)


def _less(one: Any, other: Any) -> bool:
    return bool(one < other)


def _greater(one: Any, other: Any) -> bool:
    return bool(one > other)


def _at_most(one: Any, other: Any) -> bool:
    return bool(one <= other)


def _at_least(one: Any, other: Any) -> bool:
    return bool(one >= other)


_ORDERS: dict[str, tuple[Callable[[Any, Any], bool], bool]] = {
    "Equals": (_equal, False),
    "NotEquals": (_equal, True),
    "LessThan": (_less, False),
    "LessThanEquals": (_at_most, False),
    "GreaterThan": (_greater, False),
    "GreaterThanEquals": (_at_least, False),
}
_LIKE = partial(_text, wildcards=True)
_OPERATORS: dict[str, tuple[Callable[[str], Compare], bool]] = {
    "StringEquals": (_text, False),
    "StringNotEquals": (_text, True),
    "StringEqualsIgnoreCase": (partial(_text, fold=True), False),
    "StringNotEqualsIgnoreCase": (partial(_text, fold=True), True),
    "StringLike": (_LIKE, False),
    "StringNotLike": (_LIKE, True),
    "ArnEquals": (_LIKE, False),
    "ArnLike": (_LIKE, False),
    "ArnNotEquals": (_LIKE, True),
    "ArnNotLike": (_LIKE, True),
    "Bool": (partial(_ordered, _boolean, _equal), False),
    "IpAddress": (_in_network, False),
    "NotIpAddress": (_in_network, True),
    **{
        f"{kind}{order}": (partial(_ordered, parse, meets), negated)
        for kind, parse in (("Numeric", _number), ("Date", _date))
        for order, (meets, negated) in _ORDERS.items()
    },
}
