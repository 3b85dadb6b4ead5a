"""Why a key's bytes lie where they do: the rule and policy that place it, its copies, and the order of reads."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from gateway.blocks.read.lookup import Lookup
from gateway.blocks.read.read_plan import plan_read
from gateway.errors import InvalidArgument, NoSuchUser
from gateway.journal.tables import WorkState
from gateway.namespace.read import lookups
from gateway.placement import policy as placement
from gateway.placement.routes import CopyRank, Routes
from gateway.reconcile.placement_targets import PlacementTargets
from gateway.topology import Topology

if TYPE_CHECKING:
    from gateway.site.site import Site

EXTENTS_MAX = 10_000
"""Of an object that has more, the first ones are looked at."""


def parse(address: str) -> tuple[str, bytes]:
    """Bucket and key of `s3://bucket/key`. Raises `InvalidArgument`."""
    bucket, slash, key = address.removeprefix("s3://").partition("/")
    if not address.startswith("s3://") or not bucket or not slash or not key:
        raise InvalidArgument(f"{address!r} is no address of an object: s3://BUCKET/KEY")
    return bucket, key.encode()


def explain(
    site: Site, address: str, cluster: str = "", user: str = "root", version: str = "", size: int | None = None
) -> dict[str, Any]:
    """Plain values: where bytes of that key would go if *user* wrote *size* of them now (if None: as many as there
    are), where they are, and in which order a reader in *cluster* (that of the site, if empty) would try the copies.
    *version*: of the object; empty, the current one. Raises `NoSuchBucket`, `NoSuchUser`, `InvalidArgument`."""
    topology = site.config.topology(site.folder)
    cluster = cluster or topology.home
    if cluster not in topology.clusters:
        raise InvalidArgument(f"there is no cluster {cluster!r}; there is {', '.join(topology.clusters)}")
    if not site.store.query("SELECT 1 FROM user WHERE name = ?", (user,)):
        raise NoSuchUser(user)
    bucket, key = parse(address)
    found = lookups.find(site.store, bucket, key, version)
    file = found.file if found is not None else None
    if size is None and file is not None:
        size = file.size
    told: dict[str, Any] = {
        "address": address,
        "version": found.version_text if found is not None else None,
        "size": file.size if file is not None else None,
        "delete_marker": found is not None and file is None,
        "would_go": _would_go(site, topology, bucket, key, size, user),
        "lies": None,
    }
    if file is not None:
        told["lies"] = _lies(site, topology, cluster, file.shape, file.content, file.size)
    return told


def _would_go(site: Site, topology: Topology, bucket: str, key: bytes, size: int | None, user: str) -> dict[str, Any]:
    lost = {name for (name,) in site.store.query("SELECT name FROM backend WHERE lost = 1")}
    chosen = topology.policy_for(bucket, key, size, user)
    nth = next((n for n, rule in enumerate(topology.rules) if rule.matches(bucket, key, size, user)), None)
    return {
        "size": size,
        "policy": chosen.name,
        "because": "no rule matches" if nth is None else f"rules[{nth}] is the first that matches",
        "ack": list(placement.acked_on(chosen, topology, lost)),
        "ack_copies": topology.copies_before_answer(chosen),
        "keep": [name for name in topology.kept_on(chosen) if name not in lost],
        "refused": placement.unmet(chosen, topology, lost),
        "within_seconds": chosen.within_seconds,
    }


def _lies(site: Site, topology: Topology, cluster: str, shape: int, content: int, size: int) -> dict[str, Any]:
    targets = PlacementTargets(site.store, lambda: topology)
    targets.refresh()
    lookup = Lookup(site.store, {})
    sets: Counter[tuple[int, int]] = Counter()
    work: Counter[str] = Counter()
    seen: set[bytes] = set()
    cut = False
    for nth, want in enumerate(plan_read(shape, content, 0, size, lookup.extents_of, lookup.pieces_of)):
        cut = nth >= EXTENTS_MAX
        if cut:
            break
        if want.extent.block not in seen:
            seen.add(want.extent.block)
            sets.update(site.store.query("SELECT policy, backends FROM block WHERE id = ?", (want.extent.block,)))
            work.update(_work_on(site, want.extent.block))
    routes = Routes(
        placement.placed_backends(topology, {name: number for number, name in targets.names.items()}).values(),
        cluster,
        topology.lines,
        timing=site.timing.routes,
    )
    policies = {number: name for name, number in site.store.query("SELECT name, id FROM policy")}
    return {
        "blocks": len(seen),
        "only_the_first": cut,
        "work": dict(work),
        "groups": [
            {
                "blocks": count,
                "policy": policies[policy],
                "on": [targets.names[each] for each in lookup.members(set_id)],
                "should": sorted(targets.names[each] for each in targets.desired(policy, lookup.members(set_id))),
                "reads_from": cluster,
                "order": [
                    {"backend": targets.names[reason.id], "why": _why(topology, targets, reason)}
                    for reason in routes.explain(lookup.members(set_id), min(size, 8 << 20), 0.0)
                ],
            }
            for (policy, set_id), count in sorted(sets.items())
        ],
    }


def _why(topology: Topology, targets: PlacementTargets, reason: CopyRank) -> str:
    if targets.names[reason.id] not in topology.backends:
        return "not read: the config does not name it"
    return f"{reason}; it was given up as lost" if reason.id in targets.lost else str(reason)


def _work_on(site: Site, block: bytes) -> list[str]:
    rows = site.store.query("SELECT state, word FROM work WHERE block = ?", (block,))
    return [
        f"{WorkState(state).name.lower()}: {word}" if word else WorkState(state).name.lower() for state, word in rows
    ]


def _found(told: dict[str, Any]) -> str:
    if told["delete_marker"]:
        return f"a delete marker (version {told['version']})"
    if told["size"] is None:
        return "there is no such object"
    return f"{told['size']} bytes" + ("" if told["version"] == "null" else f" (version {told['version']})")


def _as(size: int | None) -> str:
    return " in parts" if size is None else f" as {size} bytes at once"


def spell(told: dict[str, Any]) -> list[str]:
    """For people."""
    goes = told["would_go"]
    lines = [
        f"{told['address']}: {_found(told)}",
        f"written now{_as(goes['size'])}: policy {goes['policy']} ({goes['because']})",
        f"  answered once {goes['ack_copies']} of {', '.join(goes['ack'])} have it",
        f"  kept on {', '.join(goes['keep'])} within {goes['within_seconds']:g} s",
    ]
    if goes["refused"]:
        lines[2:] = [f"  refused: {goes['refused']}"]
    if told["lies"] is None:
        return lines
    for group in told["lies"]["groups"]:
        lines.append(f"{group['blocks']} block(s) of policy {group['policy']}: on {', '.join(group['on'])}")
        if sorted(group["on"]) != group["should"]:
            lines.append(f"  should be on {', '.join(group['should'])}")
        lines.append(f"  read from {group['reads_from']}:")
        lines += [f"    {n}. {each['backend']}: {each['why']}" for n, each in enumerate(group["order"], 1)]
    lines += [f"work: {count} block(s) {what}" for what, count in told["lies"]["work"].items()]
    if told["lies"]["only_the_first"]:
        lines.append(f"(of its first {EXTENTS_MAX} extents)")
    return lines
