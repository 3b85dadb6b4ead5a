"""Routing: find the operation that a request names, in a table whose more specific rows come first. Pure.

A route matches if the request has every query parameter and header that the route names. A request that names a
sub-resource (`?acl`) without a matching route is rejected: `PUT /bucket/key?acl` must not be taken for PutObject.
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
"""The query parameters that name a sub-resource or another operation. Other parameters only modify an operation."""


class Route(NamedTuple):
    """One operation, and what a request for it contains."""

    method: str
    scope: str
    operation: str
    """S3's name of the operation."""
    handler: Operation
    query: tuple[str, ...] = ()
    """The required query parameters; `name=value` if the value matters too."""
    header: str = ""
    """The required header, if any."""
    signed: bool = True
    """Whether the request must be authenticated before the handler runs."""


class RoutingTable:
    """The routing table, indexed by method and scope."""

    def __init__(self, rows: Iterable[Route]) -> None:
        self._rows: dict[tuple[str, str], list[tuple[Route, dict[str, str], frozenset[str]]]] = {}
        self._methods: frozenset[str] = frozenset()
        for route in rows:
            wanted = {name: value for name, _, value in (each.partition("=") for each in route.query)}
            taken = frozenset(wanted) & SUBRESOURCES
            self._rows.setdefault((route.method, route.scope), []).append((route, wanted, taken))
            self._methods |= {route.method}
        # A shortcut for the most frequent requests: the routes without sub-resource and without requirements.
        self._plain: dict[tuple[str, str], Route] = {}
        for method_and_scope, candidates in self._rows.items():
            first = next(((row, wanted) for row, wanted, taken in candidates if not taken), None)
            if first is not None and not first[1] and not first[0].header:
                self._plain[method_and_scope] = first[0]

    def find(self, method: str, scope: str, query: Mapping[str, str], headers: Mapping[str, str]) -> Route:
        """Return the route of a request. If none matches, the returned route's handler raises S3Error."""
        plain = self._plain.get((method, scope))
        if plain is not None and (method == "OPTIONS" or SUBRESOURCES.isdisjoint(query)):
            return plain  # a preflight request has the query of the request that it is about
        rows = self._rows.get((method, scope), ())
        named = SUBRESOURCES.intersection(query) if query else frozenset()
        for row, wanted, taken in rows:
            if taken == named and (not wanted or _has(query, wanted)) and (not row.header or row.header in headers):
                return row
        if scope == "object" and "partNumber" in named:
            # For GET and HEAD it is a modifier, and rows above match it; elsewhere it is the number of a part.
            named -= {"partNumber"}
        if named:
            return _rejecting_route(method, scope, "NotImplemented", min(named))
        return _rejecting_route(method, scope, "MethodNotAllowed", method)


def _has(query: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    return all(name in query and (not value or query[name] == value) for name, value in wanted.items())


def _rejecting_route(method: str, scope: str, code: str, what: str) -> Route:
    async def refuse(_call: S3Request) -> Response:
        if code == "NotImplemented":
            raise S3Error(code, f"{method} of {what} is not implemented.", Feature=what)
        raise S3Error(code, Method=method, ResourceType=scope.upper())

    return Route(method, scope, "Unknown", refuse)
