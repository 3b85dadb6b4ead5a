"""Limits on what unauthenticated clients can use: connections, TLS handshakes and bytes of unfinished heads. Pure.

A request's body needs no limit here: it is read after authentication, and its memory is charged to a budget.

A connection is counted under its client's address from the moment it is accepted. At the limit a new connection
replaces an idle one: the oldest of the address that has the most connections. A client with many idle connections
therefore loses its own first, and never those of a client that has fewer.
"""

from __future__ import annotations

import ipaddress
from typing import Protocol

from gateway.engine.shares import Shares

EVICTION_SCAN_MOST = 64
"""How many connections of one address are examined in search of an idle one."""
IPV6_PREFIX_BITS = 64
"""IPv6 addresses with a common prefix of this length belong to one client: a site is assigned at least such a prefix
(RFC 6177)."""


class CountedConnection(Protocol):
    """A connection, or a handshake, that a `ConnectionLimit` counts."""

    @property
    def address(self) -> str:
        """The result of `address_group` for its client. It must not change while the connection is counted."""

    @property
    def idle(self) -> bool:
        """Whether no request is in progress."""

    def evict(self) -> None:
        """Close at once. The caller has already stopped counting it."""


class ConnectionLimit:
    """A bounded set of connections, grouped by address. Each method takes constant time."""

    __slots__ = ("_by_address", "_by_count", "_count", "_limit", "_most")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._count = 0
        self._by_address: dict[str, dict[CountedConnection, None]] = {}
        """The connections of each address, oldest first."""
        self._by_count: dict[int, dict[str, None]] = {}
        """The addresses by their number of connections."""
        self._most = 0
        """The largest number of connections of one address."""

    def __len__(self) -> int:
        return self._count

    def admit(self, connection: CountedConnection) -> bool:
        """Count *connection*; at the limit, evict an idle one. Returns False if it was not counted, since none is
        idle."""
        if self._count >= self._limit and not self._evict_idle():
            return False
        self._add(connection)
        return True

    def _evict_idle(self) -> bool:
        address = next(iter(self._by_count.get(self._most, ())), None)
        if address is None:
            return False
        connections = self._by_address[address]
        for connection, _ in zip(connections, range(EVICTION_SCAN_MOST), strict=False):
            if connection.idle:
                self.remove(connection)
                connection.evict()
                return True
        for connection in [connection for connection, _ in zip(connections, range(EVICTION_SCAN_MOST), strict=False)]:
            connections[connection] = connections.pop(connection)  # the next call examines others
        return False

    def remove(self, connection: CountedConnection) -> None:
        """Stop counting *connection*. Does nothing if it is not counted."""
        connections = self._by_address.get(connection.address)
        if connections is None or connection not in connections:
            return
        del connections[connection]
        self._recount(connection.address, len(connections) + 1, len(connections))
        if not connections:
            del self._by_address[connection.address]

    def replace(self, connection: CountedConnection, successor: CountedConnection) -> bool:
        """Count *successor*, which has the same address, in place of *connection*. Returns whether *connection* was
        counted."""
        connections = self._by_address.get(connection.address)
        if connections is None or connection not in connections:
            return False
        del connections[connection]
        connections[successor] = None
        return True

    def _add(self, connection: CountedConnection) -> None:
        connections = self._by_address.setdefault(connection.address, {})
        connections[connection] = None
        self._recount(connection.address, len(connections) - 1, len(connections))

    def _recount(self, address: str, before: int, now: int) -> None:
        self._count += now - before
        if before:
            addresses = self._by_count[before]
            del addresses[address]
            if not addresses:
                del self._by_count[before]
        if now:
            self._by_count.setdefault(now, {})[address] = None
        if now > self._most or (before == self._most and before not in self._by_count):
            self._most = now


class Admission:
    """The limits of one worker."""

    __slots__ = ("_heads", "all_connections", "closed", "handshakes")

    def __init__(self, connections_limit: int, heads_limit_bytes: int, handshakes_limit: int = 1 << 30) -> None:
        self.all_connections = ConnectionLimit(connections_limit)
        """All connections."""
        self.handshakes = ConnectionLimit(handshakes_limit)
        """The connections whose TLS handshake is in progress; they also count in `all_connections`."""
        self.closed = False
        """The server is stopping: connections do not wait for another request."""
        self._heads = Shares(heads_limit_bytes, "unfinished heads")

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self.all_connections)

    @property
    def heads_bytes(self) -> int:
        """The bytes of unfinished heads, of all connections together."""
        return self._heads.total

    def reserve_head(self, address: str, count: int) -> bool:
        """Count *count* more bytes of an unfinished head. Returns False, and counts nothing, at the limit."""
        return self._heads.try_add(address, count)

    def release_head(self, address: str, count: int) -> None:
        """Release *count* bytes of a head that is complete or was rejected."""
        self._heads.remove(address, count)


def address_group(peer: object) -> str:
    """Return the address under which a client is counted: an IPv4 address, or the /64 prefix of an IPv6 address.

    *peer* is the `peername` of a transport."""
    text = str(peer[0]) if isinstance(peer, tuple) and peer else str(peer or "")
    if ":" not in text:
        return text
    try:
        address = ipaddress.IPv6Address(text.partition("%")[0])
    except ValueError:
        return text
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((address, IPV6_PREFIX_BITS), strict=False))
