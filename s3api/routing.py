"""Which operation a request asks for: a table, the pickier row first, and one function that looks things up. Pure.

A row matches when every query parameter and header it names is there. A request that names a sub-resource (`?acl`)
which no row takes must never fall through to the plain row: `PUT /bucket/key?acl` is no PutObject.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from s3api.errors import S3Error
from s3api.request import Operation, S3Request
from s3api.response import Response

SUBRESOURCES = frozenset(
    {
        "abac", "accelerate", "acl", "analytics", "annotation", "append", "attributes", "cors", "delete", "encryption",
        "intelligent-tiering", "inventory", "legal-hold", "lifecycle", "location", "logging",
        "metadataAnnotationTable", "metadataConfiguration", "metadataInventoryTable", "metadataJournalTable",
        "metadataTable", "metrics", "notification", "object-lock", "ownershipControls", "partNumber", "policy",
        "policyStatus", "publicAccessBlock", "renameObject", "replication", "requestPayment", "restore", "retention",
        "select", "session", "tagging", "torrent", "uploadId", "uploads", "versioning", "versions", "website",
    }
)  # fmt: skip
"""Query parameters that name a sub-resource or another verb. Other parameters only modify an operation."""


class Route(NamedTuple):
    """One operation and what a request must have to be it."""

    method: str
    scope: str
    operation: str
    """S3's name of it."""
    handler: Operation
    query: tuple[str, ...] = ()
    """Parameters that must be there; `name=value` when the value matters."""
    header: str = ""
    signed: bool = True
    """Whether the caller must be known before the handler runs."""


class Routes:
    """The table, cut by method and scope."""

    def __init__(self, rows: Iterable[Route]) -> None:
        self._rows: dict[tuple[str, str], list[tuple[Route, dict[str, str], frozenset[str]]]] = {}
        self._methods: frozenset[str] = frozenset()
        for row in rows:
            wanted = {name: value for name, _, value in (each.partition("=") for each in row.query)}
            taken = frozenset(wanted) & SUBRESOURCES
            self._rows.setdefault((row.method, row.scope), []).append((row, wanted, taken))
            self._methods |= {row.method}
        # What a request gets that names no sub-resource, where its row wants nothing else either: the commonest ones.
        self._plain: dict[tuple[str, str], Route] = {}
        for asked, found in self._rows.items():
            first = next(((row, wanted) for row, wanted, taken in found if not taken), None)
            if first is not None and not first[1] and not first[0].header:
                self._plain[asked] = first[0]

    def find(self, method: str, scope: str, query: Mapping[str, str], headers: Mapping[str, str]) -> Route:
        """The row that *method* on *scope* with these parameters and headers asks for; one that refuses if none."""
        plain = self._plain.get((method, scope))
        if plain is not None and SUBRESOURCES.isdisjoint(query):
            return plain
        rows = self._rows.get((method, scope), ())
        named = SUBRESOURCES.intersection(query) if query else frozenset()
        for row, wanted, taken in rows:
            if taken == named and (not wanted or _has(query, wanted)) and (not row.header or row.header in headers):
                return row
        if scope == "object" and "partNumber" in named:
            # GET and HEAD take it as a modifier, which the rows above say; elsewhere it is a part's number.
            named -= {"partNumber"}
        if named:
            return _refusing(method, scope, "NotImplemented", min(named))
        return _refusing(method, scope, "MethodNotAllowed", method)


def _has(query: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    return all(name in query and (not value or query[name] == value) for name, value in wanted.items())


def _refusing(method: str, scope: str, code: str, what: str) -> Route:
    async def refuse(_call: S3Request) -> Response:
        if code == "NotImplemented":
            raise S3Error(code, f"{method} of {what} is not implemented.", Feature=what)
        raise S3Error(code, Method=method, ResourceType=scope.upper())

    return Route(method, scope, "Unknown", refuse)
