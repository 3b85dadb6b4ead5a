"""Which policy a write gets, and that the checks of rules are right about it."""

from __future__ import annotations

from fnmatch import fnmatchcase

from hypothesis import given
from hypothesis import strategies as st

from gateway.topology import BackendPlace, Cluster, Policy, Rule, Topology, problems

POLICIES = {name: Policy(name, ("disk",), ("disk",)) for name in ("default", "fast", "far")}
BACKENDS = {"disk": BackendPlace("disk", "local", "home", 1, 1.0, path="/disk")}

globs = st.text("ab*?", min_size=1, max_size=4)
rules = st.builds(
    Rule,
    st.sampled_from(sorted(POLICIES)),
    globs,
    st.text("x/é", max_size=2),
    st.integers(0, 3),
    st.none() | st.integers(3, 5),
    st.sampled_from(["", "ann", "bob"]),
)
writes = st.tuples(
    st.text("ab", min_size=1, max_size=4),
    st.text("x/éy", min_size=1, max_size=3).map(str.encode),
    st.none() | st.integers(0, 6),
    st.sampled_from(["ann", "bob", "eve"]),
)


def topology(*found: Rule) -> Topology:
    return Topology("home", {"home": Cluster("home")}, {}, BACKENDS, POLICIES, tuple(found))


def plainly(rule: Rule, bucket: str, key: bytes, size: int | None, user: str) -> bool:
    """A rule, spelt out."""
    bytes_ = float("inf") if size is None else size
    return (
        fnmatchcase(bucket, rule.bucket)
        and key.decode().startswith(rule.prefix)
        and rule.min_bytes <= bytes_
        and (rule.max_bytes is None or bytes_ <= rule.max_bytes)
        and rule.user in ("", user)
    )


@given(st.lists(rules, max_size=5), writes)
def test_the_first_rule_that_matches_picks_the_policy_and_else_it_is_the_default(
    found: list[Rule], write: tuple[str, bytes, int | None, str]
) -> None:
    names = [rule.policy for rule in found if plainly(rule, *write)]
    assert topology(*found).policy_for(*write).name == (names[0] if names else "default")


@given(rules, rules, writes)
def test_a_rule_that_covers_another_matches_all_that_it_matches(
    wide: Rule, narrow: Rule, write: tuple[str, bytes, int | None, str]
) -> None:
    if wide.coverage()(narrow) and narrow.matches(*write):
        assert wide.matches(*write)


@given(st.lists(rules, max_size=5), writes)
def test_a_rule_that_is_called_shadowed_picks_nothing(
    found: list[Rule], write: tuple[str, bytes, int | None, str]
) -> None:
    told = {each.where for each in problems(topology(*found), [])}
    first = next((at for at, rule in enumerate(found) if rule.matches(*write)), None)
    assert first is None or f"rules[{first}]" not in told


@given(rules)
def test_a_rule_covers_itself(rule: Rule) -> None:
    assert rule.coverage()(rule)


def test_what_is_uploaded_in_parts_counts_as_larger_than_any_size() -> None:
    found = topology(Rule("fast", max_bytes=1 << 20), Rule("far", min_bytes=1 << 40))
    assert found.policy_for("b", b"k", None, "ann").name == "far"
    assert found.policy_for("b", b"k", 1 << 20, "ann").name == "fast"
    assert found.policy_for("b", b"k", 1 << 30, "ann").name == "default"


def test_a_hostile_glob_does_not_take_long() -> None:
    assert not Rule("default", "*a" * 12 + "b").matches("a" * 63, b"k", 0, "")
