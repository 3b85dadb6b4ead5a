"""Validate a topology. Pure.

Every name that is mentioned must exist. A policy that cannot be kept and a rule that can never match are refused before
any backend is opened. All problems are reported at once.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterable, Iterator
from contextlib import suppress
from ipaddress import ip_address
from itertools import combinations
from urllib.parse import urlsplit

from gateway.topology.places import BackendPlace, Line, Problem, S3Place
from gateway.topology.policies import DEFAULT, NEAR, Policy, Topology

_AWS = ".amazonaws.com"

PARTIAL_ACK_MOST = 6
"""With `ack_copies`, `ack` may name at most this many backends: any choice among them is a set in the journal."""


def problems(topology: Topology, lines: Iterable[Line]) -> list[Problem]:
    """Return all problems; an empty list for a valid topology. *lines*: in the order of the file."""
    found = [*_home(topology), *_lines(topology, lines), *_backends(topology)]
    for policy in topology.policies.values():
        found += list(_names_in(topology, policy)) or list(_kept(topology, policy))
    return [*found, *_default(topology), *_rules(topology)]


def _home(topology: Topology) -> Iterator[Problem]:
    if not topology.clusters:
        yield Problem("clusters", "there is none: name the cluster of this site")
    elif not topology.home:
        names = ", ".join(topology.clusters)
        yield Problem("site.cluster", f"is missing: name the cluster of this site, one of {names}")
    elif topology.home not in topology.clusters:
        yield Problem("site.cluster", _unknown("cluster", topology.home, topology.clusters))


# ---- lines and backends ---------------------------------------------------------------------------------------------


def _lines(topology: Topology, lines: Iterable[Line]) -> Iterator[Problem]:
    first: dict[frozenset[str], int] = {}
    for at, line in enumerate(lines):
        where = f"lines[{at}].clusters"
        for name in sorted(line.clusters - set(topology.clusters)):
            yield Problem(where, _unknown("cluster", name, topology.clusters))
        if len(line.clusters) < 2:
            yield Problem(where, "joins a cluster with itself")
        if line.clusters in first:
            names = " and ".join(sorted(line.clusters))
            yield Problem(where, f"{names} are already joined by lines[{first[line.clusters]}]")
        first.setdefault(line.clusters, at)


def _backends(topology: Topology) -> Iterator[Problem]:
    if not topology.backends:
        yield Problem("backends", "there is none, so nothing would be stored")
    for backend in topology.backends.values():
        where = f"backends.{backend.name}"
        if backend.name == NEAR:
            yield Problem(where, f"a backend cannot be called {NEAR!r}: in a policy's ack that means those nearby")
        if backend.cluster not in topology.clusters:
            yield Problem(f"{where}.cluster", _unknown("cluster", backend.cluster, topology.clusters))
    for one, other in combinations(topology.backends.values(), 2):
        reason = _same_place(one, other)
        if reason:
            yield Problem(f"backends.{other.name}.{'bucket' if other.s3 else 'path'}", reason)


def _same_place(one: BackendPlace, other: BackendPlace) -> str:
    """Return why two backends overlap; empty if they do not."""
    if one.s3 is None and other.s3 is None:
        paths = [os.path.normpath(each.path) for each in (one, other)]
        if paths[0] == paths[1]:
            return f"is the folder of backends.{one.name} too: two backends cannot share a place"
        if os.path.commonpath(paths) in paths:
            inner, outer = sorted((one, other), key=lambda each: -len(os.path.normpath(each.path)))
            return f"the folder of backends.{inner.name} lies inside that of backends.{outer.name}"
    elif one.s3 is not None and other.s3 is not None and _bucket(one.s3) == _bucket(other.s3):
        if one.s3.prefix == other.s3.prefix:
            return f"is the bucket and prefix of backends.{one.name} too: two backends cannot share a place"
        if one.s3.prefix.startswith(other.s3.prefix) or other.s3.prefix.startswith(one.s3.prefix):
            return f"is the bucket of backends.{one.name} too, and one's prefix lies below the other's"
    return ""


def _bucket(place: S3Place) -> tuple[str, str]:
    """Return a normal form of the bucket's address (host and port, bucket).

    Case, a trailing dot, the scheme and its default port make no difference, and neither does the spelling of a
    loopback address. All AWS regions count as one host, since bucket names are unique across them."""
    if not place.endpoint:
        return "", place.bucket
    parts = urlsplit(place.endpoint.lower())
    host = (parts.hostname or "").rstrip(".")
    if host.endswith(_AWS) and any(
        label == "s3" or label.startswith("s3-") for label in host.removesuffix(_AWS).split(".")
    ):
        return "", place.bucket
    if host == "localhost" or host.endswith(".localhost"):
        host = "127.0.0.1"
    with suppress(ValueError):
        address = ip_address(host)
        address = getattr(address, "ipv4_mapped", None) or address
        host = "127.0.0.1" if address.is_loopback else address.compressed
    usual = {"http": 80, "https": 443}[parts.scheme]
    port = parts.port if parts.port not in (None, usual) else ""
    return f"{host}:{port}", place.bucket


# ---- policies -------------------------------------------------------------------------------------------------------


def _default(topology: Topology) -> Iterator[Problem]:
    if DEFAULT not in topology.policies:
        yield Problem("policies", f"there is no policy {DEFAULT!r}: it places what no rule matches")


def _names_in(topology: Topology, policy: Policy) -> Iterator[Problem]:
    """Yield a problem for each name in *policy* that does not exist, is repeated or is misplaced."""
    for field, names in (("ack", policy.ack), ("keep", policy.keep)):
        where = f"policies.{policy.name}.{field}"
        if not names:
            yield Problem(where, "names no backend, so nothing would be stored")
        if len(set(names)) < len(names):
            yield Problem(where, "names a backend twice")
        for name in names:
            if name == NEAR and field == "keep":
                yield Problem(
                    where,
                    f"{NEAR!r} is allowed in ack only, for those of keep in this cluster: name backends here",
                )
            elif name not in topology.backends and name != NEAR:
                yield Problem(where, _unknown("backend", name, topology.backends))
    for name in policy.ack:
        if name not in policy.keep and name in topology.backends:
            reason = f"{name!r} is awaited before the answer but not kept: name it in keep as well"
            yield Problem(f"policies.{policy.name}.ack", reason)


def _kept(topology: Topology, policy: Policy) -> Iterator[Problem]:
    """Yield a problem if *policy*, whose names all exist, cannot be kept."""
    where = f"policies.{policy.name}"
    acked, kept = topology.acked_on(policy), topology.kept_on(policy)
    if not kept:
        yield Problem(f"{where}.keep", "names only backends that drain, so nothing would be kept")
        return
    if NEAR in policy.ack and not any(topology.backends[each].cluster == topology.home for each in policy.keep):
        reason = f"asks for a copy nearby, and none of {', '.join(policy.keep)} is in cluster {topology.home!r}"
        yield Problem(f"{where}.ack", reason)
    elif not acked:
        yield Problem(f"{where}.ack", "names only backends that drain, so no write could be answered")
    elif policy.ack_copies > len(acked):
        reason = f"{policy.ack_copies} copies can never be awaited: writes go to {len(acked)} ({', '.join(acked)})"
        yield Problem(f"{where}.ack_copies", reason)
    elif policy.ack_copies and policy.ack_copies < len(acked) > PARTIAL_ACK_MOST:
        yield Problem(
            f"{where}.ack_copies", f"at most {PARTIAL_ACK_MOST} backends can be in ack, if not all are awaited"
        )


# ---- rules ----------------------------------------------------------------------------------------------------------


def _rules(topology: Topology) -> Iterator[Problem]:
    covers = [rule.coverage() for rule in topology.rules]
    for at, rule in enumerate(topology.rules):
        where = f"rules[{at}]"
        if rule.policy not in topology.policies:
            yield Problem(f"{where}.policy", _unknown("policy", rule.policy, topology.policies))
        if rule.max_bytes is not None and rule.max_bytes < rule.min_bytes:
            reason = f"nothing is at least {rule.min_bytes} bytes and at most {rule.max_bytes}: it can never match"
            yield Problem(f"{where}.max_bytes", reason)
            continue
        for before in range(at):
            if covers[before](rule):
                yield Problem(where, f"can never match: rules[{before}] comes before it and matches all that it does")
                break


def _unknown(kind: str, name: str, known: Iterable[str]) -> str:
    return f"there is no {kind} {name!r}; there is {', '.join(known) or 'none'}"
