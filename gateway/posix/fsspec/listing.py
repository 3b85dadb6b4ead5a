"""Listings of fsspec, made of listings of S3: one directory, or everything below it at once.

A key that ends in a slash stands for the directory of that name, and is not listed as a file.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from gateway.engine.types import Page
from gateway.posix.api import FileApi
from gateway.posix.fsspec import info as infos
from gateway.posix.fsspec.info import Info
from gateway.posix.paths import SLASH, ObjectPath, format_path, parent_paths


async def list_pages(api: FileApi, bucket: str, prefix: bytes, delimiter: bytes = b"") -> AsyncIterator[Page]:
    """Yield all pages of a listing."""
    after: bytes | None = b""
    while after is not None:
        page = await api.page(bucket, prefix, delimiter, after)
        yield page
        after = page.next


async def list_buckets(api: FileApi) -> list[Info]:
    """Return all buckets of the user."""
    buckets, after = await api.buckets()
    while after is not None:
        more, after = await api.buckets(after)
        buckets += more
    return [infos.bucket_info(each) for each in buckets]


async def list_directory(api: FileApi, parsed: ObjectPath, beginning: bytes = b"") -> list[Info] | None:
    """Return the contents of a directory whose names begin with *beginning*, by name; None if there are none and the
    directory does not exist.

    A directory with an empty name (that of the key `a//b`) has the path of its parent, and is left out: a program that
    walks down the tree would never end. `list_tree` lists the files below it."""
    entries, exists = [], not parsed.key
    async for page in list_pages(api, parsed.bucket, parsed.prefix + beginning, SLASH):
        exists = exists or bool(page.keys or page.prefixes)
        entries += [infos.listed_info(parsed.bucket, each) for each in page.keys if not each.key.endswith(SLASH)]
        directories = [each for each in page.prefixes if each != parsed.prefix + SLASH]
        entries += [infos.directory_info(format_path(parsed.bucket, each)) for each in directories]
    entries.sort(key=_by_name)
    return entries if exists else None


async def list_tree(
    api: FileApi, parsed: ObjectPath, beginning: bytes = b"", *, withdirs: bool = False
) -> dict[str, Info]:
    """Return every file below a directory whose path in it begins with *beginning*, by path; with *withdirs* also every
    directory. It is one flat listing, however deep the tree is."""
    entries: dict[str, Info] = {}
    root = format_path(parsed.bucket, parsed.key)
    async for page in list_pages(api, parsed.bucket, parsed.prefix + beginning):
        for each in page.keys:
            is_file = not each.key.endswith(SLASH)
            info = (
                infos.listed_info(parsed.bucket, each)
                if is_file
                else infos.directory_info(format_path(parsed.bucket, each.key))
            )
            if withdirs:
                for parent in parent_paths(info["name"], root):
                    if parent not in entries:
                        entries[parent] = infos.directory_info(parent)
            if is_file or (withdirs and info["name"] != root):
                entries[info["name"]] = info
    return entries


def _by_name(info: Info) -> str:
    return str(info["name"])
