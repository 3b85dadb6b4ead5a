"""A second evaluator of policies, written from the documentation without regard to speed, to compare with."""

from __future__ import annotations

import fnmatch
import re
from ipaddress import ip_address, ip_network
from typing import Any


def wild(pattern: str, text: str) -> bool:
    """Whether *text* matches *pattern*, tried in all ways."""
    if not pattern:
        return not text
    if pattern[0] == "*":
        return wild(pattern[1:], text) or (bool(text) and wild(pattern, text[1:]))
    return bool(text) and (pattern[0] in ("?", text[0])) and wild(pattern[1:], text[1:])


def expand(text: str, context: dict[str, str]) -> str | None:
    """*text* with variables replaced, in which a wildcard of a value is marked as a literal."""
    missing = False

    def value(match: re.Match[str]) -> str:
        nonlocal missing
        name = match[1].lower()
        if name in ("*", "?", "$"):
            return {"*": "\x01", "?": "\x02", "$": "$"}[name]
        if name not in context:
            missing = True
            return ""
        return context[name].replace("*", "\x01").replace("?", "\x02")

    replaced = re.sub(r"\$\{([^}]*)\}", value, text)
    return None if missing else replaced


def same(pattern: str, text: str, context: dict[str, str], like: bool) -> bool:
    expanded = expand(pattern, context)
    if expanded is None:
        return False
    marked = text.replace("*", "\x01").replace("?", "\x02")
    return wild(expanded, marked) if like else expanded.replace("\x01", "*").replace("\x02", "?") == text


def listed(value: Any) -> list[str]:
    return value if isinstance(value, list) else [value]


def condition_holds(operator: str, key: str, values: list[str], context: dict[str, str]) -> bool:
    actual = context.get(key.lower())
    base = operator.removesuffix("IfExists")
    if base == "Null":
        return (actual is None) == (values[0] == "true")
    negated = "Not" in base
    if actual is None:
        return negated or operator.endswith("IfExists")
    plain = base.replace("Not", "")
    tests = {
        "StringEquals": lambda value: same(value, actual, context, like=False),
        "StringLike": lambda value: same(value, actual, context, like=True),
        "StringEqualsIgnoreCase": lambda value: value.lower() == actual.lower(),
        "IpAddress": lambda value: ip_address(actual) in ip_network(value, strict=False),
        "Bool": lambda value: value.lower() == actual.lower(),
        "NumericLessThan": lambda value: float(actual) < float(value),
        "NumericEquals": lambda value: float(actual) == float(value),
    }
    return any(map(tests[plain], values)) != negated


def statement_applies(statement: dict[str, Any], user: str, action: str, resource: str, context: Any) -> bool:
    inverted = "NotPrincipal" in statement
    principal = statement.get("NotPrincipal" if inverted else "Principal")
    names = listed(principal["AWS"]) if isinstance(principal, dict) else [principal]
    if ("*" in names or (user != "" and user in names)) == inverted:
        return False
    inverted = "NotAction" in statement
    actions = listed(statement["NotAction" if inverted else "Action"])
    if any(fnmatch.fnmatchcase(action.lower(), each.lower()) for each in actions) == inverted:
        return False
    inverted = "NotResource" in statement
    resources = listed(statement["NotResource" if inverted else "Resource"])
    if any(same(each, resource, context, like=True) for each in resources) == inverted:
        return False
    return all(
        condition_holds(operator, key, listed(values), context)
        for operator, keys in statement.get("Condition", {}).items()
        for key, values in keys.items()
    )


def decide(document: dict[str, Any], user: str, action: str, resource: str, context: dict[str, str]) -> str:
    applying = [
        each["Effect"]
        for each in listed(document["Statement"])
        if statement_applies(each, user, action, resource, context)
    ]
    return "deny" if "Deny" in applying else "allow" if applying else "silent"
