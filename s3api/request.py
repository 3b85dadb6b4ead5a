"""One call at the door: what an operation reads of its request. An operation is a function of it to an `Response`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

from gateway.engine.types import Caller
from s3api.errors import S3Error
from s3api.format.metadata import as_text
from s3api.format.request_target import Target, to_bytes
from s3api.response import Response
from s3api.settings import S3Settings

if TYPE_CHECKING:
    from gateway.engine.engine import Engine
    from gateway.identity.sigv4 import VerifiedRequest
    from s3api.http.exchange import Exchange

MAX_KEYS = 1000
MAX_PART_NUMBER = 10_000
MAX_INTEGER = (1 << 31) - 1
_NOBODY = Caller("", 0, 0, root=False)


class S3Request:
    """One request: target, headers, who asks, the engine that will answer."""

    __slots__ = (
        "bucket",
        "caller",
        "engine",
        "exchange",
        "headers",
        "key",
        "method",
        "operation",
        "query",
        "request_id",
        "settings",
        "target",
        "verified",
    )

    def __init__(
        self,
        engine: Engine,
        settings: S3Settings,
        exchange: Exchange,
        target: Target,
        headers: dict[str, str],
        request_id: str,
    ) -> None:
        self.engine = engine
        self.settings = settings
        self.exchange = exchange
        self.target = target
        self.bucket = target.bucket
        self.key = target.key
        self.query = target.query
        self.headers = headers
        """Lower-case names; several of one name joined by commas."""
        self.method: str = exchange.message.method
        self.operation = "Unknown"
        self.request_id = request_id
        self.caller: Caller = _NOBODY
        """Who signed; nobody until `signing.authenticate` has passed."""
        self.verified: VerifiedRequest | None = None
        """How the body is signed; None until then."""

    @property
    def version(self) -> str | None:
        """The versionId asked for. Raises S3Error InvalidArgument for an empty one."""
        version = self.query.get("versionId")
        if version == "":
            raise S3Error("InvalidArgument", "Version id cannot be the empty string", ArgumentName="versionId")
        return version

    def refuse_version(self) -> None:
        """A write makes a version, it cannot name one. Raises S3Error InvalidArgument."""
        if "versionId" in self.query:
            raise S3Error(
                "InvalidArgument", "This operation does not accept a version-id.", ArgumentName="versionId",
                ArgumentValue=self.query["versionId"],
            )  # fmt: skip

    def raw(self, name: str) -> bytes:
        """A query parameter's bytes, empty when it is absent."""
        return to_bytes(self.query.get(name, ""))

    def number(self, name: str, default: int, most: int = MAX_INTEGER, least: int = 0) -> int:
        """A query parameter that is a whole number. Raises S3Error InvalidArgument."""
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
        """Whether keys go out percent-encoded. Raises S3Error InvalidArgument for an unknown encoding-type."""
        asked = self.query.get("encoding-type")
        if not asked:
            return False
        if asked.lower() != "url":
            raise S3Error(
                "InvalidArgument",
                "Invalid Encoding Method specified in Request",
                ArgumentName="encoding-type",
                ArgumentValue=asked,
            )
        return True


def part_number(request: S3Request) -> int:
    """The partNumber asked for. Raises S3Error InvalidArgument."""
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
    """Headers under lower-case names, several of one name joined by commas (RFC 9110 section 5.3). A value that is not
    UTF-8 is read as Latin-1."""
    found: dict[str, str] = {}
    for name, value in items:
        if not value.isascii():
            value = as_text(value)
        lower = name.lower()
        found[lower] = f"{found[lower]},{value}" if lower in found else value
    return found


Operation = Callable[[S3Request], Awaitable[Response]]
