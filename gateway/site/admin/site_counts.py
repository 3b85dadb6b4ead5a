"""Counts of what a site stores, from the counters in the journal's tables. No large table is scanned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gateway.site.admin.newer_data import newer_kept_until_ns

if TYPE_CHECKING:
    from gateway.site.site_view import SiteView


def read_site_counts(site: SiteView) -> dict[str, Any]:
    """Return the site's id, name and incarnation, and its counts, as plain values."""
    query = site.store.query
    (buckets, objects, versions, size, uploads) = query(
        "SELECT count(*), coalesce(sum(objects), 0), coalesce(sum(versions), 0), coalesce(sum(size), 0),"
        " coalesce(sum(uploads), 0) FROM bucket"
    )[0]
    return {
        "site": site.id,
        "name": site.config.site.name,
        "incarnation": site.incarnation,
        "records": site.store.head(),
        "users": query("SELECT count(*) FROM user")[0][0],
        "buckets": buckets,
        "objects": objects,
        "versions": versions,
        "bytes": size,
        "uploads": uploads,
        "rehearsal": site.is_rehearsal,
        "keeps_newer_until_ns": newer_kept_until_ns(site.store, site.timing.clock),
    }
