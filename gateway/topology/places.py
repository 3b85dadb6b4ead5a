"""Clusters, backends and policies, and whether they fit together. Pure.

Every name that one of them mentions must exist, and what cannot be kept is refused here, before anything opens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple


class Problem(NamedTuple):
    """What is wrong, and where: the key path in the config, such as `backends.disk.cluster`."""

    where: str
    reason: str


@dataclass(frozen=True, slots=True)
class Cluster:
    """What stands together in one data centre."""

    name: str


@dataclass(frozen=True, slots=True)
class BackendPlace:
    """One place that stores blocks, and how much may be asked of it at once."""

    name: str
    type: Literal["local"]
    cluster: str
    path: str
    """Of a local backend: its folder."""
    calls: int
    """How many calls may be under way at once, from one process."""
    deadline_seconds: float
    """After which a call is given up as `Unavailable`."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Which copies must exist. Both name backends; what `ack` names is in `keep` as well."""

    name: str
    ack: tuple[str, ...]
    """Before a write is answered."""
    keep: tuple[str, ...]
    """In the end."""


@dataclass(frozen=True, slots=True)
class Topology:
    """All of it, and the cluster in which this process stands."""

    home: str
    clusters: Mapping[str, Cluster]
    backends: Mapping[str, BackendPlace]
    policies: Mapping[str, Policy]

    def problems(self) -> list[Problem]:
        """All that does not fit together, in the order of the file; none when it is sound."""
        return [*self._counts(), *self._backends(), *self._policies()]

    @property
    def policy(self) -> Policy:
        """The policy of every bucket."""
        (only,) = self.policies.values()
        return only

    def _counts(self) -> Iterator[Problem]:
        named: tuple[tuple[str, Mapping[str, object]], ...] = (
            ("clusters", self.clusters),
            ("backends", self.backends),
            ("policies", self.policies),
        )
        for table, found in named:
            if len(found) != 1:
                names = ", ".join(found) or "none"
                yield Problem(table, f"exactly one is supported, and there are {len(found)}: {names}")
        if self.home and self.home not in self.clusters:
            yield Problem("site.cluster", _unknown("cluster", self.home, self.clusters))

    def _backends(self) -> Iterator[Problem]:
        for backend in self.backends.values():
            where = f"backends.{backend.name}"
            if backend.cluster not in self.clusters:
                yield Problem(f"{where}.cluster", _unknown("cluster", backend.cluster, self.clusters))

    def _policies(self) -> Iterator[Problem]:
        for policy in self.policies.values():
            for field, names in (("ack", policy.ack), ("keep", policy.keep)):
                where = f"policies.{policy.name}.{field}"
                if not names:
                    yield Problem(where, "names no backend, so nothing would be stored")
                if len(set(names)) < len(names):
                    yield Problem(where, "names a backend twice")
                for name in names:
                    if name not in self.backends:
                        yield Problem(where, _unknown("backend", name, self.backends))
            for name in policy.ack:
                if name not in policy.keep and name in self.backends:
                    reason = f"{name!r} is awaited before the answer but not kept: name it in keep as well"
                    yield Problem(f"policies.{policy.name}.ack", reason)


def _unknown(kind: str, name: str, known: Iterable[str]) -> str:
    return f"there is no {kind} {name!r}; there is {', '.join(known) or 'none'}"
