"""Directories and trees as fsspec lists them, out of S3's listings: one directory, or everything below it at once.

A key that ends in a slash makes the directory of that name and is not shown as a file.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from gateway.engine.types import Page
from gateway.posix.api import FileApi
from gateway.posix.fsspec import info as infos
from gateway.posix.fsspec.info import Info
from gateway.posix.paths import SLASH, ObjectPath, format_path, parent_paths


async def pages(api: FileApi, bucket: str, prefix: bytes, delimiter: bytes = b"") -> AsyncIterator[Page]:
    """All pages of a listing."""
    after: bytes | None = b""
    while after is not None:
        page = await api.page(bucket, prefix, delimiter, after)
        yield page
        after = page.next


async def buckets(api: FileApi) -> list[Info]:
    """All buckets of the user."""
    found, after = await api.buckets()
    while after is not None:
        more, after = await api.buckets(after)
        found += more
    return [infos.of_bucket(each) for each in found]


async def directory(api: FileApi, place: ObjectPath, beginning: bytes = b"") -> list[Info] | None:
    """What stands in a directory under names that begin with *beginning*, by name; None where there is none such, and
    no directory either. What has an empty name in it (the key `a//b`) has the directory's own path, and is not shown:
    whoever walks down would come to the same place for ever. `tree` shows the files below it."""
    found, there = [], not place.key
    async for page in pages(api, place.bucket, place.prefix + beginning, SLASH):
        there = there or bool(page.keys or page.prefixes)
        found += [infos.of_listed(place.bucket, each) for each in page.keys if not each.key.endswith(SLASH)]
        directories = [each for each in page.prefixes if each != place.prefix + SLASH]
        found += [infos.directory(format_path(place.bucket, each)) for each in directories]
    found.sort(key=_by_name)
    return found if there else None


async def tree(api: FileApi, place: ObjectPath, beginning: bytes = b"", *, withdirs: bool = False) -> dict[str, Info]:
    """Every file below a directory whose path in it begins with *beginning*, and with *withdirs* every directory, by
    path: one flat listing, however deep the tree is."""
    found: dict[str, Info] = {}
    root = format_path(place.bucket, place.key)
    async for page in pages(api, place.bucket, place.prefix + beginning):
        for each in page.keys:
            is_file = not each.key.endswith(SLASH)
            info = (
                infos.of_listed(place.bucket, each) if is_file else infos.directory(format_path(place.bucket, each.key))
            )
            if withdirs:
                for parent in parent_paths(info["name"], root):
                    if parent not in found:
                        found[parent] = infos.directory(parent)
            if is_file or (withdirs and info["name"] != root):
                found[info["name"]] = info
    return found


def _by_name(info: Info) -> str:
    return str(info["name"])
