"""What stands where must fit together; whatever does not is named by its key path."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.topology import BackendPlace, Cluster, Line, Policy, Problem, Rule, S3Place, Topology, problems


def place(name: str = "disk", cluster: str = "home", *, drain: bool = False) -> BackendPlace:
    return BackendPlace(name, "local", cluster, 64, 60.0, drain, f"/srv/{name}")


def bucket(name: str, prefix: str = "", endpoint: str = "") -> BackendPlace:
    return BackendPlace(name, "s3", "home", 64, 60.0, s3=S3Place("b", prefix, endpoint))


def by_name(*places: BackendPlace) -> dict[str, BackendPlace]:
    return {each.name: each for each in places}


TWO = by_name(place(), place("more", "away"))


def topology(**changed: object) -> Topology:
    parts: dict[str, object] = {
        "home": "home",
        "clusters": {"home": Cluster("home"), "away": Cluster("away")},
        "lines": {},
        "backends": by_name(place()),
        "policies": {"default": Policy("default", ("disk",), ("disk",))},
    }
    return Topology(**{**parts, **changed})  # type: ignore[arg-type]


def of(policy: Policy, *others: Policy) -> dict[str, Policy]:
    return {each.name: each for each in (policy, *others)}


def told(found: Topology, *lines: Line) -> list[Problem]:
    return problems(found, lines)


def test_a_sound_one_has_no_problems() -> None:
    assert told(topology()) == []
    assert topology().default.name == "default"


def test_a_home_that_is_no_cluster_is_told() -> None:
    assert told(topology(home="elsewhere")) == [
        Problem("site.cluster", "there is no cluster 'elsewhere'; there is home, away")
    ]


def test_a_site_of_several_clusters_says_which_is_its_own() -> None:
    (found,) = told(topology(home=""))
    assert found.where == "site.cluster"
    assert found.reason.endswith("home, away")


def test_what_is_awaited_but_not_kept_is_told() -> None:
    found = told(topology(backends=TWO, policies=of(Policy("default", ("disk", "more"), ("disk",)))))
    assert [each.where for each in found] == ["policies.default.ack"]


def test_a_site_without_any_backend_is_told() -> None:
    found = told(topology(backends={}))
    assert found[0] == Problem("backends", "there is none, so nothing would be stored")
    assert Problem("policies.default.ack", "there is no backend 'disk'; there is none") in found


def test_a_site_without_a_default_policy_is_told() -> None:
    (found,) = told(topology(policies=of(Policy("other", ("disk",), ("disk",)))))
    assert found.where == "policies"


def test_a_policy_that_keeps_nothing_but_on_drained_backends_is_told() -> None:
    drained = by_name(place(drain=True), place("more"))
    (found,) = told(topology(backends=drained))
    assert found == Problem("policies.default.keep", "names only backends that drain, so nothing would be kept")


def test_a_drained_backend_is_neither_written_nor_kept() -> None:
    drained = topology(
        backends=by_name(place(drain=True), place("more")),
        policies=of(Policy("default", ("disk", "more"), ("disk", "more"))),
    )
    assert told(drained) == []
    assert drained.kept_on(drained.default) == ("more",)
    assert drained.acked_on(drained.default) == ("more",)


@pytest.mark.parametrize(
    ("policy", "where"),
    [
        (Policy("default", ("disk",), ("disk", "more"), ack_copies=2), "policies.default.ack_copies"),
        (Policy("default", ("near",), ("more",)), "policies.default.ack"),
        (Policy("default", ("near", "more"), ("more",)), "policies.default.ack"),
    ],
)
def test_an_ack_that_can_never_be_met_is_told(policy: Policy, where: str) -> None:
    assert [each.where for each in told(topology(backends=TWO, policies=of(policy)))] == [where]


def test_copies_that_would_have_to_lie_on_what_drains_can_never_be_awaited() -> None:
    policy = Policy("default", ("disk", "more"), ("disk", "more"), ack_copies=2)
    drained = by_name(place(), place("more", drain=True))
    (found,) = told(topology(backends=drained, policies=of(policy)))
    assert found.where == "policies.default.ack_copies"
    assert found.reason == "2 copies can never be awaited: writes go to 1 (disk)"


def test_near_is_what_is_kept_in_the_writers_cluster() -> None:
    policy = Policy("default", ("near",), ("disk", "more"))
    for home, expected in (("home", ("disk",)), ("away", ("more",))):
        found = topology(home=home, backends=TWO, policies=of(policy))
        assert told(found) == []
        assert found.acked_on(policy) == expected


def test_two_backends_at_one_place_are_told() -> None:
    same = by_name(place(), replace(place("more"), path="/srv/x/../disk/"))
    assert [each.where for each in told(topology(backends=same))] == ["backends.more.path"]
    nested = by_name(place(), replace(place("more"), path="/srv/disk/more"))
    (found,) = told(topology(backends=nested))
    assert "lies inside that of backends.disk" in found.reason


@pytest.mark.parametrize(
    ("one", "other", "clash"),
    [
        (("", ""), ("", ""), True),
        (("", ""), ("a/", ""), True),
        (("a/", ""), ("a/b/", ""), True),
        (("a/", ""), ("ab/", ""), False),
        (("", ""), ("", "http://minio:9000"), False),
        (("", "http://minio:80"), ("", "HTTP://Minio/"), True),
        (("", "https://minio"), ("", "https://minio:443/"), True),
        (("", "https://minio:80"), ("", "https://minio"), False),
        (("a/b/", ""), ("a/", ""), True),
        (("", ""), ("", "https://s3.eu-west-1.amazonaws.com"), True),
    ],
)
def test_two_backends_in_one_bucket_must_not_overlap(one: tuple[str, str], other: tuple[str, str], clash: bool) -> None:
    found = told(topology(backends=by_name(place(), bucket("one", *one), bucket("other", *other))))
    assert [each.where for each in found] == (["backends.other.bucket"] if clash else [])


def test_lines_join_two_clusters_that_exist_and_each_pair_once() -> None:
    line = Line(frozenset({"home", "away"}), 0.03, 1e9, 0.02)
    found = told(
        topology(), line, line, replace(line, clusters=frozenset({"home"})),
        replace(line, clusters=frozenset({"home", "x"})),
    )  # fmt: skip
    assert [each.where for each in found] == ["lines[1].clusters", "lines[2].clusters", "lines[3].clusters"]
    assert found[0].reason == "away and home are already joined by lines[0]"
    assert found[1].reason == "joins a cluster with itself"


def test_a_backend_cannot_be_called_near() -> None:
    found = told(topology(backends=by_name(place(), place("near"))))
    assert [each.where for each in found] == ["backends.near"]


def test_a_rule_names_a_policy_that_there_is() -> None:
    (found,) = told(topology(rules=(Rule("fast", "train-*"),)))
    assert found == Problem("rules[0].policy", "there is no policy 'fast'; there is default")


def test_a_rule_that_nothing_can_match_is_told() -> None:
    (found,) = told(topology(rules=(Rule("default", min_bytes=9, max_bytes=8),)))
    assert found.where == "rules[0].max_bytes"


@pytest.mark.parametrize(
    ("first", "then", "shadowed"),
    [
        (Rule("default"), Rule("default", "train-*", "ckpt/", 5, 9, "ann"), True),
        (Rule("default", "train-*"), Rule("default", "train-a-*"), True),
        (Rule("default", "train-a-*"), Rule("default", "train-*"), False),
        (Rule("default", "train-?"), Rule("default", "train-*"), False),
        (Rule("default", "train-*"), Rule("default", "train-?"), True),
        (Rule("default", prefix="a/"), Rule("default", prefix="a/b"), True),
        (Rule("default", max_bytes=9), Rule("default", min_bytes=3, max_bytes=9), True),
        (Rule("default", max_bytes=9), Rule("default", min_bytes=3), False),
        (Rule("default", user="ann"), Rule("default"), False),
    ],
)
def test_a_rule_in_the_shadow_of_one_before_it_is_told(first: Rule, then: Rule, shadowed: bool) -> None:
    found = told(topology(rules=(first, then)))
    assert [each.where for each in found] == (["rules[1]"] if shadowed else [])


def test_a_rule_in_the_shadow_of_several_is_told_once_with_the_first() -> None:
    found = told(topology(rules=(Rule("default", "a*"), Rule("default", "ab*"), Rule("default", "abc*"))))
    assert [(each.where, "rules[0]" in each.reason) for each in found] == [("rules[1]", True), ("rules[2]", True)]
