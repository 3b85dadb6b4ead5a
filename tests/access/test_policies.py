"""Policies are evaluated as the documentation says: compared with a second evaluator, and case by case."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.access.actions import ACTIONS
from gateway.access.parse import (
    ACTION_PATTERNS_MAX,
    POLICY_BYTES_MAX,
    SEARCHED_CHARS_MAX,
    VALUES_MAX,
    parse_bucket_policy,
)
from gateway.access.patterns import Pattern
from gateway.access.policy import Policy
from gateway.access.request import AccessRequest
from gateway.errors import MalformedPolicy
from tests.access import naive

USERS = {"alice": 1, "bob": 2}
ARN = "arn:aws:s3:::b"


def parse(*statements: dict[str, Any], version: str = "2012-10-17") -> Policy:
    document = {"Version": version, "Statement": list(statements)}
    return parse_bucket_policy(json.dumps(document).encode(), "b", USERS.get)


def statement(**changes: Any) -> dict[str, Any]:
    found = {"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": f"{ARN}/*"} | changes
    return {name: value for name, value in found.items() if value is not None}


def request(user: str = "alice", action: str = "s3:GetObject", key: str = "/k", **context: str) -> AccessRequest:
    values = {name.replace("_", ":", 1).lower(): (value,) for name, value in context.items()}
    if user:
        values["aws:username"] = (user,)
    return AccessRequest(USERS.get(user, 0), action, ARN + key, values)


def outcome(policy: Policy, request: AccessRequest) -> str:
    if policy.denies(request):
        return "deny"
    return "allow" if policy.allows(request) else "silent"


def decide(policy: Policy, *args: Any, **context: Any) -> str:
    return outcome(policy, request(*args, **context))


# --- patterns -------------------------------------------------------------------------------------------------------

texts = st.text("ab*?", max_size=12)


@given(texts, texts)
def test_a_pattern_matches_what_trying_all_ways_finds(pattern: str, text: str) -> None:
    assert Pattern(pattern).matches(text) == naive.wild(pattern, text)


@given(st.lists(st.sampled_from(["a", "*", "?", "${aws:username}", "${*}", "${?}", "${$}"]), max_size=6), texts, texts)
def test_the_value_of_a_variable_has_no_wildcards(tokens: list[str], name: str, text: str) -> None:
    pattern = "".join(tokens)
    context = {"aws:username": name}
    assert Pattern(pattern).matches(text, context.get) == naive.same(pattern, text, context, like=True)


def test_a_variable_without_a_value_matches_nothing_unless_it_has_a_default() -> None:
    assert not Pattern("home/${aws:username}").matches("home/")
    assert Pattern("home/${aws:username, 'guest'}").matches("home/guest")


@pytest.mark.parametrize("text", ["${", "a${aws:username", "${aws:UserAgent}", "${}", "${aws:username, guest}"])
def test_an_invalid_variable_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"\$"):
        Pattern(text)


# --- documents ------------------------------------------------------------------------------------------------------


def one_or_list(values: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    return values | st.lists(values, min_size=1, max_size=3)


PRINCIPALS = st.just("*") | st.fixed_dictionaries({"AWS": one_or_list(st.sampled_from(["*", "alice", "bob"]))})
ACTION_PATTERNS = one_or_list(
    st.sampled_from(["s3:GetObject", "s3:Get*", "s3:PutObject*", "S3:*", "*", "s3:?etObject"])
)
RESOURCES = one_or_list(
    st.sampled_from([f"{ARN}/*", f"{ARN}/a*", f"{ARN}/?", f"{ARN}*", f"{ARN}/${{aws:username}}/*", f"{ARN}/*/b"])
)
CONDITIONS = st.dictionaries(
    st.sampled_from(["StringEquals", "StringNotEquals", "StringLike", "StringNotLike", "StringLikeIfExists"]),
    st.dictionaries(
        st.sampled_from(["s3:prefix", "aws:UserName"]),
        one_or_list(st.sampled_from(["a", "a*", "alice", "b?", "${aws:username}"])),
        min_size=1,
        max_size=2,
    ),
    max_size=2,
) | st.sampled_from(
    [
        {"IpAddress": {"aws:SourceIp": ["10.0.0.0/8", "192.168.1.1"]}},
        {"NotIpAddress": {"aws:SourceIp": "10.0.0.0/8"}},
        {"Bool": {"aws:SecureTransport": "false"}},
        {"Null": {"s3:prefix": "true"}},
        {"NumericLessThan": {"s3:max-keys": "10"}},
    ]
)


@st.composite
def statements(draw: st.DrawFn) -> dict[str, Any]:
    def named(name: str, values: st.SearchStrategy[Any]) -> dict[str, Any]:
        return {draw(st.sampled_from([name, f"Not{name}"])): draw(values)}

    return {
        "Effect": draw(st.sampled_from(["Allow", "Deny"])),
        **named("Principal", PRINCIPALS),
        **named("Action", ACTION_PATTERNS),
        **named("Resource", RESOURCES),
        "Condition": draw(CONDITIONS),
    }


@given(
    st.lists(statements(), min_size=1, max_size=4),
    st.sampled_from(["", "alice", "bob"]),
    st.sampled_from(["s3:GetObject", "s3:PutObject", "s3:PutObjectTagging", "s3:GetObjectVersion"]),
    st.sampled_from(["/a", "/ab", "/b", "/alice/x", "/x/b"]),
    st.dictionaries(
        st.sampled_from(["s3:prefix", "aws:sourceip", "s3:max-keys", "aws:securetransport"]),
        st.just(""),
        max_size=4,
    ),
    st.data(),
)
def test_the_evaluator_agrees_with_a_second_one(
    drawn: list[dict[str, Any]], user: str, action: str, key: str, present: dict[str, str], data: st.DataObject
) -> None:
    choices = {
        "s3:prefix": ["a", "ab", "alice", "b1", ""],
        "aws:sourceip": ["10.1.2.3", "192.168.1.1", "2001:db8::1"],
        "s3:max-keys": ["5", "50"],
        "aws:securetransport": ["true", "false"],
    }
    context = {name: data.draw(st.sampled_from(choices[name])) for name in present}
    if user:
        context["aws:username"] = user
    asked = AccessRequest(USERS.get(user, 0), action, ARN + key, {name: (v,) for name, v in context.items()})
    policy = parse(*drawn)
    assert outcome(policy, asked) == naive.decide({"Statement": drawn}, user, action, ARN + key, context)


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_what_is_no_policy_is_refused(text: bytes) -> None:
    with pytest.raises(MalformedPolicy):
        parse_bucket_policy(text, "b", USERS.get)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(["Effect", "Principal", "Action", "Resource", "Condition", "Sid", "NotAction"]), json_values)
def test_a_statement_with_anything_in_a_field_is_refused_or_accepted_but_no_other_error(name: str, value: Any) -> None:
    try:
        parse(statement(**{name: value}))
    except MalformedPolicy as error:
        assert str(error)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"Effect": "allow"}, "Invalid effect in Statement 1"),
        ({"Action": "s3:GetObjects"}, "invalid action s3:GetObjects"),
        ({"Action": "ec2:Run*"}, "invalid action"),
        ({"Resource": "arn:aws:s3:::other/*"}, "invalid resource arn:aws:s3:::other"),
        ({"Resource": "arn:aws:s3:::bb/*"}, "invalid resource"),
        ({"Resource": "*"}, "invalid resource"),
        ({"Resource": ARN}, "does not apply to any resource"),
        ({"Action": "s3:ListBucket"}, "does not apply to any resource"),
        ({"Principal": "alice"}, "Invalid principal"),
        ({"Principal": {"AWS": "carol"}}, "no user carol"),
        ({"Principal": {"Service": "x"}}, "Invalid principal"),
        ({"Principal": None}, "Missing required field Principal"),
        ({"NotAction": "s3:*"}, "either Action or NotAction"),
        ({"Condition": {"StringSame": {"s3:prefix": "a"}}}, "StringSame is not supported"),
        ({"Condition": {"StringEquals": {"aws:MultiFactorAuthAge": "a"}}}, "condition key"),
        ({"Condition": {"IpAddress": {"aws:SourceIp": "10.0.0.0/33"}}}, "not an IP address"),
        ({"Condition": {"IpAddress": {"aws:UserAgent": "10.0.0.1"}}}, "only with aws:SourceIp"),
        ({"Condition": {"DateLessThan": {"aws:CurrentTime": "soon"}}}, "not a date"),
        ({"Condition": {"NumericEquals": {"s3:max-keys": "ten"}}}, "not a number"),
        ({"Condition": []}, "Condition of Statement 1"),
        ({"Condition": {"StringEquals": {"aws:username": []}}}, "has no value"),
        ({"Unknown": 1}, "Unknown field Unknown in Statement 1"),
    ],
)
def test_what_is_wrong_with_a_statement_is_said(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(MalformedPolicy, match=message):
        parse(statement(**changes))


@pytest.mark.parametrize(
    "text",
    [
        b"", b"[]", b"{", b'{"Statement": []}', b'{"Version": "2020-01-01", "Statement": []}',
        b'{"Statement": {"Effect": "Allow", "Effect": "Deny"}}', b"[" * 20_000, b" " * (POLICY_BYTES_MAX + 1),
    ],
)  # fmt: skip
def test_a_document_without_the_form_of_a_policy_is_refused(text: bytes) -> None:
    with pytest.raises(MalformedPolicy):
        parse_bucket_policy(text, "b", USERS.get)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"Resource": [f"{ARN}/{number}" for number in range(VALUES_MAX)]}, "values"),
        ({"Condition": {"StringLike": {"s3:prefix": [str(number) for number in range(VALUES_MAX)]}}}, "values"),
        ({"Resource": [f"{ARN}/*" + "a?" * (SEARCHED_CHARS_MAX // 4) + "*"] * 2}, r"both \* and \?"),
        ({"Action": ["s3:Get*"] * (ACTION_PATTERNS_MAX + 1)}, "actions with wildcards"),
    ],
)
def test_a_policy_that_would_take_long_to_evaluate_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(MalformedPolicy, match=message):
        parse(statement(**changes))


def test_two_statements_must_not_have_one_sid() -> None:
    with pytest.raises(MalformedPolicy, match="must be unique"):
        parse(statement(Sid="one"), statement(Sid="one"))


# --- evaluation, case by case ---------------------------------------------------------------------------------------


def test_a_denial_outweighs_what_is_allowed_before_and_after_it() -> None:
    policy = parse(statement(), statement(Effect="Deny", Resource=f"{ARN}/secret/*"), statement())
    assert decide(policy) == "allow"
    assert decide(policy, key="/secret/x") == "deny"


def test_a_user_may_be_named_by_name_or_arn() -> None:
    for name in ("bob", "arn:aws:iam::123456789012:user/bob"):
        policy = parse(statement(Principal={"AWS": name}))
        assert decide(policy, "bob") == "allow"
        assert decide(policy, "alice") == decide(policy, "") == "silent"


def test_a_dead_users_policy_is_not_that_of_a_new_user_with_the_same_name() -> None:
    policy = parse(statement(Principal={"AWS": "bob"}))
    newcomer = request("bob")._replace(user_id=77)
    assert outcome(policy, newcomer) == "silent"


def test_dates_and_tags_are_compared() -> None:
    until = parse(statement(Condition={"DateLessThan": {"aws:CurrentTime": "2026-12-01T00:00:00Z"}}))
    assert decide(until, aws_currenttime="2026-11-24T10:00:00Z") == "allow"
    assert decide(until, aws_currenttime="2027-01-01T10:00:00Z") == "silent"
    tagged = parse(statement(Condition={"StringEquals": {"s3:ExistingObjectTag/Stage": "done"}}))
    for tags, decision in (({"Stage": "done"}, "allow"), ({"stage": "done"}, "silent")):
        assert outcome(tagged, request()._replace(tags=lambda tags=tags: tags)) == decision


@pytest.mark.parametrize("date", ["2026", "2026-11", "2026-11-24", "2026-11-24T00:00:00Z", "1764000000"])
def test_a_date_may_be_written_with_any_precision(date: str) -> None:
    policy = parse(statement(Condition={"DateGreaterThan": {"aws:CurrentTime": date}}))
    assert decide(policy, aws_currenttime="2026-12-24T10:00:00Z") == "allow"
    assert decide(policy, aws_currenttime="2020-01-01T00:00:00Z") == "silent"


def test_values_of_a_key_with_several_are_compared_by_any_and_all() -> None:
    keys = "s3:RequestObjectTagKeys"
    anyone = parse(statement(Condition={"ForAnyValue:StringEquals": {keys: ["a", "b"]}}))
    everyone = parse(statement(Condition={"ForAllValues:StringEquals": {keys: ["a", "b"]}}))
    for values, found in ((("a", "c"), ("allow", "silent")), (("a",), ("allow", "allow")), ((), ("silent", "allow"))):
        asked = request()._replace(context={keys.lower(): values} if values else {})
        assert tuple(outcome(each, asked) for each in (anyone, everyone)) == found


def test_a_negated_test_of_any_value_does_not_hold_without_a_value() -> None:
    condition = {"ForAnyValue:StringNotEquals": {"s3:RequestObjectTagKeys": "a"}}
    assert decide(parse(statement(Condition=condition))) == "silent"


def test_a_network_that_is_mapped_into_version_6_contains_addresses_of_version_4() -> None:
    policy = parse(statement(Condition={"IpAddress": {"aws:SourceIp": "::ffff:10.0.0.0/104"}}))
    assert decide(policy, aws_sourceip="10.1.2.3") == "allow"
    assert decide(policy, aws_sourceip="11.1.2.3") == "silent"


def test_a_network_contains_an_address_that_is_mapped_into_version_6() -> None:
    policy = parse(statement(Condition={"IpAddress": {"aws:SourceIp": "10.0.0.0/8"}}))
    assert decide(policy, aws_sourceip="::ffff:10.1.2.3") == "allow"


@pytest.mark.parametrize(
    ("changes", "public"),
    [
        ({}, True),
        ({"Effect": "Deny"}, False),
        ({"Principal": {"AWS": ["alice"]}}, False),
        ({"Principal": {"AWS": ["alice", "*"]}}, True),
        ({"Principal": None, "NotPrincipal": {"AWS": "alice"}}, True),
        ({"Condition": {"IpAddress": {"aws:SourceIp": "10.1.0.0/16"}}}, False),
        ({"Condition": {"IpAddress": {"aws:SourceIp": ["10.1.0.0/16", "0.0.0.0/0"]}}}, True),
        ({"Condition": {"IpAddress": {"aws:SourceIp": [f"{first}.0.0.0/8" for first in range(256)]}}}, True),
        ({"Condition": {"IpAddress": {"aws:SourceIp": ["10.0.0.0/8", "10.1.0.0/16"]}}}, False),
        ({"Condition": {"NotIpAddress": {"aws:SourceIp": "10.1.0.0/16"}}}, True),
        ({"Condition": {"StringEquals": {"aws:username": "alice"}}}, False),
        ({"Condition": {"StringLike": {"aws:username": "*"}}}, True),
        ({"Condition": {"StringLike": {"s3:prefix": "a"}}}, True),
    ],
)
def test_a_policy_is_public_if_it_allows_something_to_anybody(changes: dict[str, Any], public: bool) -> None:
    assert parse(statement(**changes)).is_public is public


def test_each_action_has_a_name_of_its_own_in_lower_case() -> None:
    assert len({each.lower() for each in ACTIONS}) == len(ACTIONS)
