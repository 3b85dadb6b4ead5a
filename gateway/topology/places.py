"""Clusters, the lines between them, and the backends in them. Pure values that contain no secrets.

The credentials of an S3 backend are read from the environment or a file when it is opened; these values contain only
the names of the variables and files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple


class Problem(NamedTuple):
    """A problem, and where it is: the key path in the config, such as `backends.disk.cluster`."""

    where: str
    reason: str


@dataclass(frozen=True, slots=True)
class Cluster:
    """Machines and backends in one data centre or cloud region."""

    name: str


@dataclass(frozen=True, slots=True)
class Line:
    """The dedicated line between two clusters."""

    clusters: frozenset[str]
    latency_seconds: float
    """Round-trip time."""
    bytes_per_second: float
    price_per_gib: float
    """In the currency that the config uses."""


@dataclass(frozen=True, slots=True)
class S3Place:
    """A bucket, or a prefix of one, and where its credentials are found."""

    bucket: str
    prefix: str = ""
    """Empty, or ends in a slash."""
    endpoint: str = ""
    """Empty: AWS."""
    region: str = ""
    """Empty: the one that the environment or the profile names."""
    style: Literal["auto", "path", "virtual"] = "auto"
    """`auto`: virtual-hosted style for AWS, path style for others."""
    profile: str = ""
    access_key: str = ""
    """The access key id, which is not secret. Empty: from `access_key_env`, or from AWS's credential chain."""
    access_key_env: str = ""
    secret_key_env: str = ""
    secret_key_file: str = ""
    session_token_env: str = ""
    create_bucket: bool = False
    ca_file: str = ""


@dataclass(frozen=True, slots=True)
class BackendPlace:
    """A backend as the config describes it."""

    name: str
    type: Literal["local", "s3"]
    cluster: str
    calls: int
    """The maximum number of concurrent calls of one process."""
    deadline_seconds: float
    """The time after which a call fails with `Unavailable`."""
    drain: bool = False
    """No new blocks are put there, and the blocks that are there are moved to other backends."""
    path: str = ""
    """The folder of a local backend."""
    s3: S3Place | None = None
