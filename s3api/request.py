"""A request as an operation sees it. An operation is a function from an `S3Request` to a `Response`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from gateway.engine.types import Caller
from gateway.identity.sigv4 import VerifiedRequest
from s3api.errors import S3Error
from s3api.format.metadata import as_text
from s3api.format.request_target import RequestTarget, to_bytes
from s3api.response import Response
from s3api.settings import S3Settings

if TYPE_CHECKING:
    from gateway.engine.engine import Engine

MAX_KEYS = 1000
MAX_PART_NUMBER = 10_000
MAX_INTEGER = (1 << 31) - 1
_NO_TAGS: Mapping[str, str] = {}
_ANONYMOUS = Caller("", 0, 0, root=False)


class RequestStream(Protocol):
    """The connection as an operation uses it. `http.exchange.Exchange` implements it; it is declared here so that this
    module does not import the connection."""

    @property
    def is_tls(self) -> bool: ...
    @property
    def remote(self) -> str:
        """The client's address."""

    async def read(self, idle_seconds: float) -> bytes:
        """Return the next bytes of the body, empty at its end. Raises S3Error RequestTimeout if none arrive within
        *idle_seconds*, ConnectionError if the client has disconnected."""

    def keep_running(self) -> None:
        """Do not cancel the request's task if the client disconnects."""


class S3Request:
    """One request: its target, headers and caller, and the engine to call."""

    __slots__ = (
        "bucket",
        "caller",
        "claimed_access_key",
        "engine",
        "headers",
        "key",
        "method",
        "operation",
        "query",
        "received_ns",
        "request_id",
        "settings",
        "stored_tags",
        "stream",
        "target",
        "verified",
    )

    def __init__(
        self,
        engine: Engine,
        settings: S3Settings,
        stream: RequestStream,
        method: str,
        target: RequestTarget,
        headers: dict[str, str],
        request_id: str,
        received_ns: int,
    ) -> None:
        self.engine = engine
        self.settings = settings
        self.stream = stream
        self.target = target
        self.bucket = target.bucket
        self.key = target.key
        self.query = target.query
        self.headers = headers
        """Headers under lower-case names; values of the same name are joined by commas."""
        self.method = method
        self.operation = "Unknown"
        """S3's name of the operation, for the access log."""
        self.request_id = request_id
        self.received_ns = received_ns
        """When the head of the request had arrived, by the wall clock."""
        self.stored_tags: Mapping[str, str] = _NO_TAGS
        """The tags that the request stores with an object, for the conditions of policies."""
        self.caller: Caller = _ANONYMOUS
        """The authenticated user. `auth.Authenticator` sets it."""
        self.claimed_access_key = ""
        """The access key id that the request names, whether its signature is right or not; empty if it is anonymous."""
        self.verified: VerifiedRequest | None = None
        """How the body is signed. `auth.Authenticator` sets it."""

    @property
    def version(self) -> str | None:
        """The requested versionId, if any. Raises S3Error InvalidArgument for an empty one."""
        version = self.query.get("versionId")
        if version == "":
            raise S3Error("InvalidArgument", "Version id cannot be the empty string", ArgumentName="versionId")
        return version

    def refuse_version(self) -> None:
        """Raise S3Error InvalidArgument if the request names a version, which a write cannot do."""
        if "versionId" in self.query:
            raise S3Error(
                "InvalidArgument", "This operation does not accept a version-id.", ArgumentName="versionId",
                ArgumentValue=self.query["versionId"],
            )  # fmt: skip

    def raw(self, name: str) -> bytes:
        """Return a query parameter's bytes; empty if it is absent."""
        return to_bytes(self.query.get(name, ""))

    def number(self, name: str, default: int, most: int = MAX_INTEGER, least: int = 0) -> int:
        """Return a query parameter as an integer, at most *most*, or *default* if it is absent.

        Raises S3Error InvalidArgument for a value that is not an integer from *least* to `MAX_INTEGER`."""
        text = self.query.get(name)
        if not text:
            return default
        value = int(text) if text.isascii() and text.isdigit() and len(text) <= 10 else -1
        if not least <= value <= MAX_INTEGER:
            raise S3Error(
                "InvalidArgument",
                f"Argument {name} must be an integer between {least} and {MAX_INTEGER}",
                ArgumentName=name,
                ArgumentValue=text,
            )
        return min(value, most)

    def url_encoding(self) -> bool:
        """Return whether the client wants keys percent-encoded. Raises S3Error InvalidArgument for an unknown
        encoding-type."""
        encoding = self.query.get("encoding-type")
        if not encoding:
            return False
        if encoding.lower() != "url":
            raise S3Error(
                "InvalidArgument",
                "Invalid Encoding Method specified in Request",
                ArgumentName="encoding-type",
                ArgumentValue=encoding,
            )
        return True


def part_number(request: S3Request) -> int:
    """Return the requested partNumber. Raises S3Error InvalidArgument."""
    text = request.query["partNumber"]
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= 6 else 0
    if not 1 <= number <= MAX_PART_NUMBER:
        raise S3Error(
            "InvalidArgument",
            f"Part number must be an integer between 1 and {MAX_PART_NUMBER}, inclusive",
            ArgumentName="partNumber",
            ArgumentValue=text,
        )
    return number


def lower_headers(items: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the headers under lower-case names, with values of the same name joined by commas (RFC 9110 section 5.3).
    A value that is not UTF-8 is decoded as Latin-1."""
    headers: dict[str, str] = {}
    for name, value in items:
        if not value.isascii():
            value = as_text(value)
        lower = name.lower()
        headers[lower] = f"{headers[lower]},{value}" if lower in headers else value
    return headers


Operation = Callable[[S3Request], Awaitable[Response]]
