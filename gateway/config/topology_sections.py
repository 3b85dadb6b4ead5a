"""The tables of the topology: clusters, lines, backends, policies, rules. Unknown keys are refused. Pure.

The file contains no secrets. It names the environment variable, the file or the profile that holds the secret of an S3
backend.
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
"""The maximum number of clusters, of backends, of policies and of lines. Each pair of backends is compared."""
RULES_MOST = 1_000
"""The maximum number of rules. A write evaluates them in order, and each pair of rules is compared."""
DEADLINE_SECONDS_MOST = 3_600.0
"""The time for which the sweeper waits for puts of an ended session (`SweeperTiming.upload_most_seconds`)."""
Bucket = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{1,254}$")]
Globbed = Annotated[str, StringConstraints(pattern=r"^[a-z0-9.*?-]{1,63}$")]
_SEGMENT = "[0-9A-Za-z_=+@-][0-9A-Za-z._=+@-]*"
_PREFIX = re.compile(rf"({_SEGMENT}(/{_SEGMENT})*)?")
_S3_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]*[a-z0-9]")
_IPV4 = re.compile(r"[0-9]+(\.[0-9]+){3}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
WITHIN_SECONDS = 900.0
"""The default recovery point objective of a policy."""


class Section(BaseModel):
    """A table of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False, hide_input_in_errors=True)


def _prefix(written: str) -> str:
    bare = written.strip("/")
    if _PREFIX.fullmatch(bare) is None:
        raise ValueError("a prefix consists of letters, digits and ._=+@- between slashes")
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
        raise ValueError('an endpoint has a scheme, a host and optionally a port, like "https://s3.example.org:9000"')
    return written.rstrip("/")


def _path(written: str) -> str:
    if any(each < " " or each == "\x7f" for each in written):
        raise ValueError("a path must not contain control characters")
    return written


def _variable(written: str) -> str:
    if written and _VARIABLE.fullmatch(written) is None:
        raise ValueError("must be the name of an environment variable: letters, digits and underscores")
    return written


Variable = Annotated[str, AfterValidator(_variable)]
PathText = Annotated[str, AfterValidator(_path)]
"""The path of a file or folder; may be empty."""
SomePath = Annotated[Text, AfterValidator(_path)]


class ClusterSection(Section):
    """A cluster has no settings besides its name."""


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


def _wrong_bucket_name(name: str) -> str:
    """Return what is wrong with the name of a bucket; empty if nothing is. Buckets that other servers already have, and
    old ones in us-east-1, may have other names.

    https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html"""
    if not 3 <= len(name) <= 63:
        return "it must have 3 to 63 characters"
    if not _S3_BUCKET.fullmatch(name) or ".." in name:
        return (
            "it must consist of lower-case letters, digits, hyphens and single dots, and no end may be a hyphen or dot"
        )
    if _IPV4.fullmatch(name):
        return "it must not look like an IP address"
    return ""


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
            raise ValueError("access_key and access_key_env exclude each other")
        if self.secret_key_env and self.secret_key_file:
            raise ValueError("secret_key_env and secret_key_file exclude each other")
        access, secret = bool(self.access_key or self.access_key_env), bool(self.secret_key_env or self.secret_key_file)
        if access != secret:
            absent = "secret_key_env or secret_key_file" if access else "access_key or access_key_env"
            raise ValueError(f"an access key and its secret belong together: set {absent} too, or neither")
        if self.session_token_env and not access:
            raise ValueError("session_token_env needs an access key: set access_key or access_key_env too")
        if self.profile and access:
            raise ValueError("a profile has its own keys: set either the profile or an access key")
        return self

    @model_validator(mode="after")
    def _bucket_name(self) -> S3Section:
        host = urlsplit(self.endpoint).hostname or ""
        is_aws = not self.endpoint or host.endswith((".amazonaws.com", ".amazonaws.com.cn"))
        is_legacy = is_aws and self.region in {"", "us-east-1"} and not self.create_bucket and self.style != "virtual"
        if (is_aws or self.create_bucket or self.style == "virtual") and not is_legacy:
            wrong = _wrong_bucket_name(self.bucket)
            if wrong:
                raise ValueError(f"bucket {self.bucket!r} is not a name that S3 supports: {wrong}")
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
    """Accept `"near"` for `["near"]`."""
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
