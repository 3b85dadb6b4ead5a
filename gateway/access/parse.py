"""Parse policy documents. Whatever is wrong with a document is reported with the place where it is. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from gateway.access.actions import ACTIONS, ActionKind, actions_matched
from gateway.access.conditions import Condition, compile_condition
from gateway.access.patterns import Pattern
from gateway.access.policy import Policy, Principals, Statement, make_policy
from gateway.errors import MalformedPolicy

POLICY_BYTES_MAX = 20 << 10
"""S3's limit of a bucket policy."""
VALUES_MAX = 500
"""The most values of all elements of a document together, such as actions, resources and values of conditions. S3 has
no such limit. A document with more would take more than some milliseconds to compile, and to evaluate for a request."""
SEARCHED_CHARS_MAX = 1_024
"""The most characters of all values of a document together that contain both `*` and `?`. Comparing them with a key
takes up to so many steps for each character of the key (`patterns.py`)."""
ACTION_PATTERNS_MAX = 100
"""The most actions of a document that contain wildcards. Each is compared with all actions when it is compiled."""
VERSIONS = ("2012-10-17", "2008-10-17")
_STATEMENT_KEYS = frozenset(
    {
        "Sid", "Effect", "Principal", "NotPrincipal", "Action", "NotAction", "Resource", "NotResource", "Condition",
    }
)  # fmt: skip
BUCKET_ARN = "arn:aws:s3:::"

UserId = Callable[[str], int | None]
"""Returns the id of the user of a name; None if there is none."""


class _Scope(NamedTuple):
    """The bucket that a document belongs to, and what its statements may refer to."""

    bucket: str
    user_id: UserId
    variables: bool
    """Whether the document's version has policy variables."""


def parse_bucket_policy(text: bytes, bucket: str, user_id: UserId) -> Policy:
    """Parse the policy of *bucket*. Raises `MalformedPolicy`."""
    document = _load(text)
    _check_keys(document, {"Version", "Id", "Statement"}, "the policy")
    version = document.get("Version", VERSIONS[1])
    if version not in VERSIONS:
        raise MalformedPolicy(f"The policy must contain a valid version string, one of {', '.join(VERSIONS)}")
    if "Id" in document and not isinstance(document["Id"], str):
        raise MalformedPolicy("Id must be a string")
    statements = document.get("Statement")
    if isinstance(statements, dict):
        statements = [statements]
    if not isinstance(statements, list) or not statements:
        raise MalformedPolicy("Missing required field Statement")
    _check_size(statements)
    scope = _Scope(bucket, user_id, variables=version == VERSIONS[0])
    seen: set[str] = set()
    compiled = [_statement(each, f"Statement {nth}", scope, seen) for nth, each in enumerate(statements, 1)]
    denying, allowing = ([each for effect, each in compiled if effect == wanted] for wanted in ("Deny", "Allow"))
    return make_policy(denying, allowing)


def _load(text: bytes) -> dict[str, Any]:
    if len(text) > POLICY_BYTES_MAX:
        raise MalformedPolicy(f"Policies must have at most {POLICY_BYTES_MAX} bytes")
    try:
        document = json.loads(text.decode(), object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise MalformedPolicy("Policies must be valid JSON and the first byte must be '{'")
    return document


def _check_size(statements: list[Any]) -> None:
    """Raise `MalformedPolicy` if the statements exceed one of the limits above."""
    values, searched, waiting = 0, 0, list(statements)
    while waiting:
        element = waiting.pop()
        if isinstance(element, dict | list):
            waiting += element.values() if isinstance(element, dict) else element
        else:
            values += 1
            if isinstance(element, str) and "*" in element and "?" in element:
                searched += len(element)
    if searched > SEARCHED_CHARS_MAX:
        raise MalformedPolicy(
            f"The values of the policy that contain both * and ? have {searched} characters; at most "
            f"{SEARCHED_CHARS_MAX} are supported"
        )
    if values > VALUES_MAX:
        raise MalformedPolicy(f"The policy has {values} values; at most {VALUES_MAX} are supported")
    patterns = 0
    for statement in statements:
        for name in ("Action", "NotAction"):
            actions = statement.get(name) if isinstance(statement, dict) else None
            for each in actions if isinstance(actions, list) else [actions]:
                patterns += isinstance(each, str) and ("*" in each or "?" in each)
    if patterns > ACTION_PATTERNS_MAX:
        raise MalformedPolicy(
            f"The policy has {patterns} actions with wildcards; at most {ACTION_PATTERNS_MAX} are supported"
        )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise MalformedPolicy("Policies must not contain a key twice in one object")
    return found


def _check_keys(found: dict[str, Any], known: set[str] | frozenset[str], where: str) -> None:
    for key in found:
        if key not in known:
            raise MalformedPolicy(f"Unknown field {key} in {where}")


def _statement(found: Any, where: str, scope: _Scope, seen: set[str]) -> tuple[str, Statement]:
    """Return the effect of a statement, and the statement."""
    if not isinstance(found, dict):
        raise MalformedPolicy(f"{where} must be an object")
    _check_keys(found, _STATEMENT_KEYS, where)
    sid = found.get("Sid", "")
    if not isinstance(sid, str):
        raise MalformedPolicy(f"Sid of {where} must be a string")
    if sid and sid in seen:
        raise MalformedPolicy(f"Statement IDs (SID) in a single policy must be unique: {sid}")
    seen.add(sid)
    effect = found.get("Effect")
    if effect not in ("Allow", "Deny"):
        raise MalformedPolicy(f"Invalid effect in {where}: it must be Allow or Deny")
    action_texts, inverted_actions = _either(found, "Action", where)
    resource_texts, inverted_resources = _either(found, "Resource", where)
    matched = [actions_matched(each.lower()) for each in action_texts]
    resources = tuple(_resource(each, where, scope) for each in resource_texts)
    for text, each in zip(action_texts, matched, strict=True):
        if not each:
            raise MalformedPolicy(f"Policy has invalid action {text} in {where}")
    if not inverted_actions and not inverted_resources:
        _check_kinds(action_texts, matched, resource_texts, where)
    named = frozenset().union(*matched)
    return effect, Statement(
        _principals(found, where, scope),
        frozenset(ACTIONS) - named if inverted_actions else named,
        resources,
        inverted_resources,
        _conditions(found.get("Condition", {}), where),
    )


def _either(found: dict[str, Any], name: str, where: str) -> tuple[list[str], bool]:
    """Return the values of *name* or of its negation, and whether it is the negation."""
    negation = f"Not{name}"
    if (name in found) == (negation in found):
        raise MalformedPolicy(f"{where} must contain either {name} or {negation}")
    return _texts(found.get(name, found.get(negation)), f"{name} of {where}"), negation in found


def _texts(value: Any, what: str) -> list[str]:
    values = value if isinstance(value, list) else [value]
    if not values or not all(isinstance(each, str) and each for each in values):
        raise MalformedPolicy(f"{what} must be a string or a list of strings")
    return values


def _pattern(text: str, where: str, what: str, *, variables: bool) -> Pattern:
    try:
        return Pattern(text, variables=variables)
    except ValueError as error:
        raise MalformedPolicy(f"Policy has invalid {what} in {where}: {error}") from None


def _resource(text: str, where: str, scope: _Scope) -> Pattern:
    path = text.removeprefix(BUCKET_ARN)
    rest = path.removeprefix(scope.bucket)
    if path == text or rest == path or rest[:1] not in ("", "/", "*"):
        raise MalformedPolicy(
            f"Policy has invalid resource {text} in {where}: it must be {BUCKET_ARN}{scope.bucket} or begin with "
            f"{BUCKET_ARN}{scope.bucket}/"
        )
    return _pattern(text, where, "resource", variables=scope.variables)


def _check_kinds(texts: Sequence[str], matched: Sequence[frozenset[str]], resources: Sequence[str], where: str) -> None:
    """Reject an action on objects that has only a bucket as its resource, and the other way around."""
    paths = [each.removeprefix(BUCKET_ARN) for each in resources]
    names_object = any("/" in each or "*" in each for each in paths)
    names_bucket = any("/" not in each for each in paths)
    for text, actions in zip(texts, matched, strict=True):
        kinds = {ACTIONS[each] for each in actions}
        if (ActionKind.OBJECT in kinds and names_object) or (ActionKind.BUCKET in kinds and names_bucket):
            continue
        raise MalformedPolicy(f"Action does not apply to any resource(s) in statement: {text} in {where}")


def _principals(found: dict[str, Any], where: str, scope: _Scope) -> Principals:
    inverted = "NotPrincipal" in found
    if inverted == ("Principal" in found):
        raise MalformedPolicy(f"Missing required field Principal in {where}")
    value = found["NotPrincipal"] if inverted else found["Principal"]
    if isinstance(value, dict):
        if set(value) != {"AWS"}:
            raise MalformedPolicy(f"Invalid principal in {where}: it must be * or have the form {{'AWS': [users]}}")
        value = value["AWS"]
    elif value != "*":
        raise MalformedPolicy(f"Invalid principal in {where}: it must be * or have the form {{'AWS': [users]}}")
    names = _texts(value, f"Principal of {where}")
    users = frozenset(_user(each, where, scope) for each in names if each != "*")
    return Principals("*" in names, users, inverted)


def _user(text: str, where: str, scope: _Scope) -> int:
    """Return the id of the user that *text* names: by its name, or as arn:aws:iam::ACCOUNT:user/NAME."""
    name = text
    if text.startswith("arn:"):
        parts = text.split(":", 5)
        path = parts[5] if len(parts) == 6 and parts[:4] == ["arn", "aws", "iam", ""] else ""
        name = path.removeprefix("user/") if path.startswith("user/") else ""
    found = scope.user_id(name) if name else None
    if found is None:
        raise MalformedPolicy(f"Invalid principal in policy: there is no user {text} ({where})")
    return found


def _conditions(found: Any, where: str) -> tuple[Condition, ...]:
    if not isinstance(found, dict) or not all(isinstance(keys, dict) for keys in found.values()):
        raise MalformedPolicy(f"Condition of {where} must be an object of operators, each an object of keys")
    compiled = []
    for operator, keys in found.items():
        for key, value in keys.items():
            values = value if isinstance(value, list) else [value]
            if not values:
                raise MalformedPolicy(f"Policy has an invalid condition in {where}: {key} has no value")
            try:
                compiled.append(compile_condition(operator, key, [_condition_text(each) for each in values]))
            except ValueError as error:
                raise MalformedPolicy(f"Policy has an invalid condition in {where}: {error}") from None
    return tuple(compiled)


def _condition_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise ValueError("a value must be a string, a number, true or false")
