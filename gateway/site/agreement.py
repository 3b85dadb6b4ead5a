"""Whether a site goes on elsewhere, by what the markers of its places say. Pure.

A restore raises the incarnation of a site and claims its places, so that the site that it was made from ends: what that
one went on writing nobody would find. But a marker is what a store answers, and one broken or hostile store must not
end a site whose other places are well. So a place that says so takes nothing any more, whoever it is; and the site ends
where one of its folders says so, which this machine looks at itself, or more than half of all its places do.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gateway.topology import BackendPlace


def was_restored_elsewhere(places: Mapping[str, BackendPlace], say_so: Collection[str]) -> bool:
    """*places*: all that the config names, by name. *say_so*: the names of those whose marker is of a later
    incarnation."""
    heard = places.keys() & set(say_so)
    return any(places[name].s3 is None for name in heard) or 2 * len(heard) > len(places)
