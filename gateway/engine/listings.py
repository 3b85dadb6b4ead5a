"""Listings of objects and of versions; the tags of an object."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.engine.reads import ReadOperations
from gateway.engine.types import NO_CONDITIONS, Caller, Page, VersionPage
from gateway.journal.columns import pack_map, unpack_map
from gateway.namespace.commands.objects import SetTags
from gateway.namespace.read import listing, listing_versions


class ListingOperations(ReadOperations):
    async def list(
        self,
        caller: Caller,
        bucket: str,
        prefix: bytes = b"",
        delimiter: bytes = b"",
        after: bytes = b"",
        limit: int = 1000,
    ) -> Page:
        """Return a page of the keys after *after* that begin with *prefix*, grouped at *delimiter*.

        Raises `NoSuchBucket`, `AccessDenied`."""
        row = self._bucket_row(caller, bucket)
        return await listing.list_objects(self._store, row, prefix, delimiter, after, limit)

    async def list_versions(
        self,
        caller: Caller,
        bucket: str,
        prefix: bytes = b"",
        delimiter: bytes = b"",
        after_key: bytes = b"",
        after_version: str = "",
        limit: int = 1000,
    ) -> VersionPage:
        """Return a page of versions and delete markers, by key, the newest version first. Raises as `list` does."""
        row = self._bucket_row(caller, bucket)
        return await listing_versions.list_versions(
            self._store, row, prefix, delimiter, after_key, after_version, limit
        )

    async def get_tags(
        self, caller: Caller, bucket: str, key: bytes, version: str | None
    ) -> tuple[dict[str, str], str | None]:
        """Return the tags, and the version id that has them. Raises as a read does."""
        found, file = self._find(caller, bucket, key, version, NO_CONDITIONS)
        return unpack_map(file.tags), found.shown_version

    async def set_tags(
        self, caller: Caller, bucket: str, key: bytes, version: str | None, tags: Mapping[str, str]
    ) -> str | None:
        """Replace the tags. Returns the version id that has them. Raises as a read does."""
        shown: str | None = await self._send(
            SetTags(bucket, key, *caller.acting_in(bucket), version or "", pack_map(tags))
        )
        return shown
