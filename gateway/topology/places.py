"""Clusters, the lines between them, and the backends that stand in them. Pure values; no secret ever stands in one.

What an S3 backend is entered with comes from the environment or from a file when it is opened: here stand only the
names of those.
"""

from __future__ import annotations

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
class Line:
    """The dedicated line between two clusters."""

    clusters: frozenset[str]
    latency_seconds: float
    """There and back."""
    bytes_per_second: float
    price_per_gib: float
    """In whichever currency the config reckons."""


@dataclass(frozen=True, slots=True)
class S3Place:
    """A bucket, or what is below a prefix of one, and the names by which its keys are found."""

    bucket: str
    prefix: str = ""
    """Empty, or ends in a slash."""
    endpoint: str = ""
    """Empty: AWS itself."""
    region: str = ""
    """Empty: the one that the environment or the profile names."""
    style: Literal["auto", "path", "virtual"] = "auto"
    """`auto`: virtual where it is AWS, path elsewhere."""
    profile: str = ""
    access_key: str = ""
    """The id, which is no secret; empty: by `access_key_env`, or by the chain that AWS's tools go through."""
    access_key_env: str = ""
    secret_key_env: str = ""
    secret_key_file: str = ""
    session_token_env: str = ""
    create_bucket: bool = False
    ca_file: str = ""


@dataclass(frozen=True, slots=True)
class BackendPlace:
    """One place that stores blocks, and how much may be asked of it at once."""

    name: str
    type: Literal["local", "s3"]
    cluster: str
    calls: int
    """How many calls may be under way at once, from one process."""
    deadline_seconds: float
    """After which a call is given up as `Unavailable`."""
    drain: bool = False
    """Nothing new is put there, and what is there is wanted elsewhere."""
    path: str = ""
    """Of a local backend: its folder."""
    s3: S3Place | None = None
