"""What stands where must fit together; whatever does not is named by its key path."""

from __future__ import annotations

from gateway.topology import BackendPlace, Cluster, Policy, Problem, Topology


def place(name: str = "disk", cluster: str = "home") -> BackendPlace:
    return BackendPlace(name, "local", cluster, f"/srv/{name}", 64, 60.0)


def topology(**changed: object) -> Topology:
    parts: dict[str, object] = {
        "home": "home",
        "clusters": {"home": Cluster("home")},
        "backends": {"disk": place()},
        "policies": {"default": Policy("default", ("disk",), ("disk",))},
    }
    return Topology(**{**parts, **changed})  # type: ignore[arg-type]


def test_a_sound_one_has_no_problems() -> None:
    assert topology().problems() == []
    assert topology().policy.name == "default"


def test_a_home_that_is_no_cluster_is_told() -> None:
    assert topology(home="away").problems() == [Problem("site.cluster", "there is no cluster 'away'; there is home")]


def test_what_is_awaited_but_not_kept_is_told() -> None:
    found = topology(
        backends={"disk": place(), "more": place("more")},
        policies={"default": Policy("default", ("disk", "more"), ("disk",))},
    ).problems()
    assert [each.where for each in found] == ["backends", "policies.default.ack"]


def test_a_site_without_any_backend_is_told() -> None:
    found = topology(backends={}).problems()
    assert found[0] == Problem("backends", "exactly one is supported, and there are 0: none")
    assert Problem("policies.default.ack", "there is no backend 'disk'; there is none") in found
