"""The schema of `entrepot.toml`: one class for each table. Unknown keys are refused. Pure.

`conf/embedded.toml` explains the file line by line.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from gateway.config.topology_sections import (
    NAMED_MOST,
    RULES_MOST,
    BackendSection,
    ClusterSection,
    LineSection,
    Name,
    PathText,
    PolicySection,
    RuleSection,
    Section,
    SomePath,
)
from gateway.config.units import Listen, Size
from gateway.topology import RECHECK_SECONDS, Cluster, Line, Topology

Domain = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$")]

Idle = Annotated[float, Field(ge=1, le=86_400)]
"""Seconds without any bytes from or to a client. A shorter time would end connections that are merely slow."""
ShortWait = Annotated[float, Field(ge=0.1, le=3_600)]
"""Seconds for which a request, or the gateway when it stops, waits."""
RECHECK_SECONDS_MOST = 31 * 86_400.0


class SiteSection(Section):
    name: Name
    region: Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]{1,63}$")] = "us-east-1"
    domains: list[Domain] = Field(default=[])
    """Base domains for virtual-hosted-style requests: `BUCKET.DOMAIN` addresses a bucket."""
    cluster: str = ""
    """The cluster of this site. May be empty if there is only one cluster."""


class ServerSection(Section):
    listen: Listen
    workers: Annotated[int, Field(ge=0, le=256)] = 0
    """0: one for each processor core."""
    tls_certificate: PathText = ""
    tls_key: PathText = ""
    bytes_in_flight: Annotated[Size, Field(ge=32 << 20)] = 96 << 20
    """Plain and sealed bytes that one worker may buffer for all its requests."""
    bytes_wait_seconds: ShortWait = 30.0
    """How long a request may wait for a share of `bytes_in_flight` before it is answered SlowDown."""
    connections: Annotated[int, Field(ge=1)] = 12_000
    """The maximum number of open connections of one worker."""
    idle_seconds: Idle = 75.0
    body_idle_seconds: Idle = 30.0
    write_idle_seconds: Idle = 60.0
    stop_seconds: ShortWait = 30.0
    """How long the requests of a gateway that stops may take to finish."""


class MetricsSection(Section):
    listen: Listen


class LogSection(Section):
    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "json", "text"] = "auto"
    """auto: text if standard error is a terminal, otherwise JSON."""
    requests: bool = True


class JournalSection(Section):
    path: SomePath = "journal"
    lease_seconds: Annotated[float, Field(ge=1, le=300)] = 10.0
    fork_grace_hours: Annotated[float, Field(ge=0, le=8_760)] = 24.0
    """How long blocks are kept that another copy of this site's folder may name."""
    inline_bytes: Annotated[Size, Field(le=256 << 10)] = 64 << 10
    """Sealed blocks of at most this size are stored in the journal's database first. 0: none is."""


class SealingSection(Section):
    mode: Literal["aes-256-gcm", "tagged"] = "aes-256-gcm"
    master_key: SomePath = "master.key"


EXPIRE_DAYS_LEAST = 0.05
"""A bit more than an hour, so that an upload in progress is not aborted."""


class UploadsSection(Section):
    expire_days: Annotated[float, Field(ge=EXPIRE_DAYS_LEAST, le=3_650)] = 7.0
    """Days after which a multipart upload that was not completed is aborted."""


class PlacementSection(Section):
    recheck_seconds: Annotated[float, Field(ge=0, le=RECHECK_SECONDS_MOST)] = RECHECK_SECONDS
    """Seconds for which the old copies of moved blocks are kept before the new copies are verified again."""


class Config(Section):
    """The whole config file."""

    site: SiteSection
    server: ServerSection
    metrics: MetricsSection
    log: LogSection = LogSection()
    journal: JournalSection = JournalSection()
    sealing: SealingSection = SealingSection()
    uploads: UploadsSection = UploadsSection()
    placement: PlacementSection = PlacementSection()
    clusters: Annotated[dict[Name, ClusterSection], Field(max_length=NAMED_MOST)]
    lines: Annotated[list[LineSection], Field(max_length=NAMED_MOST)] = Field(default=[])
    backends: Annotated[dict[Name, BackendSection], Field(max_length=NAMED_MOST)]
    policies: Annotated[dict[Name, PolicySection], Field(max_length=NAMED_MOST)]
    rules: Annotated[list[RuleSection], Field(max_length=RULES_MOST)] = Field(default=[])

    def topology(self, folder: Path) -> Topology:
        """Return the topology. Relative paths are relative to *folder*."""
        only = next(iter(self.clusters), "") if len(self.clusters) == 1 else ""
        return Topology(
            home=self.site.cluster or only,
            clusters={name: Cluster(name) for name in self.clusters},
            lines={line.clusters: line for line in self.joined()},
            backends={name: section.place(name, folder) for name, section in self.backends.items()},
            policies={name: section.policy(name) for name, section in self.policies.items()},
            rules=tuple(section.rule() for section in self.rules),
            recheck_seconds=self.placement.recheck_seconds,
        )

    def joined(self) -> list[Line]:
        """Return the lines in the order of the file. A valid file has at most one for each pair of clusters."""
        return [section.line() for section in self.lines]

    def to_dict(self) -> dict[str, Any]:
        """Return all settings, with defaults, as plain values of TOML. They contain no secrets, as the file has
        none."""
        return self.model_dump(mode="json", exclude_none=True)

    @property
    def version(self) -> str:
        """A hash of all settings: twelve hex digits, equal for two files with the same meaning."""
        canonical = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]
