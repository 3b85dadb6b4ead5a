"""The tables that say where bytes lie: clusters, lines, backends, policies, rules. An unknown key is refused. Pure.

No secret stands in the file: an S3 backend's is named, by a variable of the environment, a file, or a profile.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue

from gateway.config.units import Bandwidth, Size
from gateway.topology import NEAR, BackendPlace, Line, Policy, Rule, S3Place

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]
Text = Annotated[str, StringConstraints(min_length=1)]
NAMED_MOST = 256
"""Clusters, backends or policies, and as many lines. Every two backends, and every two rules, are compared."""
RULES_MOST = 1_000
"""A write asks one after the other."""
DEADLINE_SECONDS_MOST = 3_600.0
"""The sweeper waits this long for puts of a session that has ended (`SweeperTiming.upload_most_seconds`)."""
Bucket = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{1,254}$")]
Globbed = Annotated[str, StringConstraints(pattern=r"^[a-z0-9.*?-]{1,63}$")]
_SEGMENT = "[0-9A-Za-z_=+@-][0-9A-Za-z._=+@-]*"
_PREFIX = re.compile(rf"({_SEGMENT}(/{_SEGMENT})*)?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
WITHIN_SECONDS = 900.0
"""Which recovery point a policy has that says nothing."""


class Section(BaseModel):
    """One table of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False, hide_input_in_errors=True)


def _prefix(written: str) -> str:
    bare = written.strip("/")
    if _PREFIX.fullmatch(bare) is None:
        raise ValueError("a prefix is made of letters, digits and ._=+@- between slashes")
    return f"{bare}/" if bare else ""


def _endpoint(written: str) -> str:
    try:
        parts = urlsplit(written)
        sound = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        sound = False
    else:
        sound = sound and not (parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc)
    if written and not sound:
        raise ValueError('an endpoint is scheme, host and port alone, like "https://s3.example.org:9000"')
    return written.rstrip("/")


def _path(written: str) -> str:
    if any(each < " " or each == "\x7f" for each in written):
        raise ValueError("a path has no control characters in it")
    return written


def _variable(written: str) -> str:
    if written and _VARIABLE.fullmatch(written) is None:
        raise ValueError("must be the name of a variable of the environment: letters, digits and underscores")
    return written


Variable = Annotated[str, AfterValidator(_variable)]
PathText = Annotated[str, AfterValidator(_path)]
"""Of a file or folder; empty where there is none."""
SomePath = Annotated[Text, AfterValidator(_path)]


class ClusterSection(Section):
    """Nothing is said of a cluster but its name."""


class LineSection(Section):
    clusters: Annotated[list[str], Field(min_length=2, max_length=2)]
    latency_seconds: Annotated[float, Field(ge=0, le=60)]
    bandwidth: Bandwidth
    """Bytes a second."""
    price_per_gib: Annotated[float, Field(ge=0)] = 0.0

    def line(self) -> Line:
        return Line(frozenset(self.clusters), self.latency_seconds, self.bandwidth, self.price_per_gib)


class _Backend(Section):
    cluster: str
    calls: Annotated[int, Field(ge=1, le=4_096)] = 64
    deadline_seconds: Annotated[float, Field(ge=1, le=DEADLINE_SECONDS_MOST)] = 60.0
    drain: bool = False


class LocalSection(_Backend):
    type: Literal["local"]
    path: SomePath

    def place(self, name: str, folder: Path) -> BackendPlace:
        return BackendPlace(
            name, self.type, self.cluster, self.calls, self.deadline_seconds, self.drain, str(folder / self.path)
        )


class S3Section(_Backend):
    type: Literal["s3"]
    bucket: Bucket
    prefix: Annotated[str, AfterValidator(_prefix)] = ""
    endpoint: Annotated[str, AfterValidator(_endpoint)] = ""
    region: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9-]{0,63}$")] = ""
    style: Literal["auto", "path", "virtual"] = "auto"
    profile: str = ""
    access_key: str = ""
    access_key_env: Variable = ""
    secret_key_env: Variable = ""
    secret_key_file: PathText = ""
    session_token_env: Variable = ""
    create_bucket: bool = False
    ca_file: PathText = ""

    @model_validator(mode="after")
    def _credentials(self) -> S3Section:
        if self.access_key and self.access_key_env:
            raise ValueError("access_key and access_key_env both name the access key: one is enough")
        if self.secret_key_env and self.secret_key_file:
            raise ValueError("secret_key_env and secret_key_file both name the secret key: one is enough")
        access, secret = bool(self.access_key or self.access_key_env), bool(self.secret_key_env or self.secret_key_file)
        if access != secret:
            absent = "secret_key_env or secret_key_file" if access else "access_key or access_key_env"
            raise ValueError(f"an access key and its secret go together: name {absent} too, or neither")
        if self.session_token_env and not access:
            raise ValueError("session_token_env goes with an access key: name access_key or access_key_env too")
        if self.profile and access:
            raise ValueError("a profile has keys of its own: name either it or an access key")
        return self

    def place(self, name: str, folder: Path) -> BackendPlace:
        found = S3Place(
            self.bucket, self.prefix, self.endpoint, self.region, self.style, self.profile, self.access_key,
            self.access_key_env, self.secret_key_env, _below(folder, self.secret_key_file), self.session_token_env,
            self.create_bucket, _below(folder, self.ca_file),
        )  # fmt: skip
        return BackendPlace(name, self.type, self.cluster, self.calls, self.deadline_seconds, self.drain, s3=found)


BackendSection = Annotated[LocalSection | S3Section, Field(discriminator="type")]


def _names(written: Any) -> Any:
    """`"near"` alone is as good as `["near"]`."""
    return [written] if written == NEAR else written


_ACK_SCHEMA: JsonSchemaValue = {"anyOf": [{"const": NEAR}, {"type": "array", "items": {"type": "string"}}]}


class PolicySection(Section):
    ack: Annotated[list[str], BeforeValidator(_names), WithJsonSchema(_ACK_SCHEMA)]
    keep: list[str]
    ack_copies: Annotated[int, Field(ge=0, le=64)] = 0
    within_seconds: Annotated[float, Field(ge=1, le=31 * 86_400)] = WITHIN_SECONDS

    def policy(self, name: str) -> Policy:
        return Policy(name, tuple(self.ack), tuple(self.keep), self.ack_copies, self.within_seconds)


class RuleSection(Section):
    policy: str
    bucket: Globbed = "*"
    prefix: Annotated[str, StringConstraints(max_length=1_024)] = ""
    min_bytes: Size = 0
    max_bytes: Size | None = None
    user: str = ""

    def rule(self) -> Rule:
        return Rule(self.policy, self.bucket, self.prefix, self.min_bytes, self.max_bytes, self.user)


def _below(folder: Path, path: str) -> str:
    return str(folder / path) if path else ""
