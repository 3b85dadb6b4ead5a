"""What may stand in `entrepot.toml`: one class a table. An unknown key is refused. Pure.

The file is explained line by line in `conf/embedded.toml`; a setting stands here only if something obeys it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from gateway.config.units import Listen, Size
from gateway.topology import BackendPlace, Cluster, Policy, Topology

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]
Domain = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$")]
Text = Annotated[str, StringConstraints(min_length=1)]
Seconds = Annotated[float, Field(gt=0, le=86_400)]


class Section(BaseModel):
    """One table of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class SiteSection(Section):
    name: Name
    region: Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]{1,63}$")] = "us-east-1"
    domains: list[Domain] = []
    """Base domains under which `bucket.DOMAIN` addresses a bucket."""
    cluster: str = ""
    """The cluster in which this process stands; empty where there is only one."""


class ServerSection(Section):
    listen: Listen
    workers: Annotated[int, Field(ge=0, le=256)] = 0
    """0: as many as the machine has cores."""
    tls_certificate: str = ""
    tls_key: str = ""
    bytes_in_flight: Annotated[Size, Field(ge=32 << 20)] = 96 << 20
    """Plain and sealed bytes that one worker may hold for requests under way."""
    bytes_wait_seconds: Seconds = 30.0
    """How long a body may wait for its share of them before it is answered SlowDown."""
    connections: Annotated[int, Field(ge=1)] = 12_000
    """How many connections one worker keeps open."""
    idle_seconds: Seconds = 75.0
    body_idle_seconds: Seconds = 30.0
    write_idle_seconds: Seconds = 60.0
    stop_seconds: Seconds = 30.0
    """How long requests under way may take to finish when the gateway is stopped."""


class MetricsSection(Section):
    listen: Listen


class LogSection(Section):
    level: Literal["debug", "info", "warning", "error"] = "info"
    requests: bool = True


class JournalSection(Section):
    path: Text = "journal"
    lease_seconds: Annotated[float, Field(ge=1, le=300)] = 10.0


class SealingSection(Section):
    mode: Literal["aes-256-gcm", "tagged"] = "aes-256-gcm"
    master_key: Text = "master.key"


class UploadsSection(Section):
    expire_days: Annotated[float, Field(gt=0, le=3_650)] = 7.0


class ClusterSection(Section):
    """Nothing is said of a cluster but its name."""


class BackendSection(Section):
    type: Literal["local"]
    cluster: str
    path: Text
    calls: Annotated[int, Field(ge=1, le=4_096)] = 64
    deadline_seconds: Seconds = 60.0


class PolicySection(Section):
    ack: list[str]
    keep: list[str]


class Config(Section):
    """The whole file."""

    site: SiteSection
    server: ServerSection
    metrics: MetricsSection
    log: LogSection = LogSection()
    journal: JournalSection = JournalSection()
    sealing: SealingSection = SealingSection()
    uploads: UploadsSection = UploadsSection()
    clusters: dict[Name, ClusterSection]
    backends: dict[Name, BackendSection]
    policies: dict[Name, PolicySection]

    def topology(self, folder: Path) -> Topology:
        """What stands where; relative paths are below *folder*."""
        backends = {
            name: BackendPlace(
                name=name,
                type=section.type,
                cluster=section.cluster,
                path=str(folder / section.path),
                calls=section.calls,
                deadline_seconds=section.deadline_seconds,
            )
            for name, section in self.backends.items()
        }
        policies = {
            name: Policy(name, tuple(section.ack), tuple(section.keep)) for name, section in self.policies.items()
        }
        home = self.site.cluster or next(iter(self.clusters), "")
        return Topology(home, {name: Cluster(name) for name in self.clusters}, backends, policies)
