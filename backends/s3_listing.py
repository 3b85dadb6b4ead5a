"""Listing what lies below a prefix: in order, page by page, and nothing but values.

obstore's lister, in Rust, takes a hundredth of the time that botocore's parser holds the loop for, but knows folders
only: it lists the folder of what is asked for from a place just before it on, and we stop behind it. A name that it
cannot spell (`a//b`, put there by hand) makes it give up; from there on the slow lister goes on. And it calls `a/`
`a`: such a name is what consoles make of an empty folder. So whatever is empty is looked at.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import obstore
from obstore.store import S3Store

from backends import base
from backends.base import Listed
from backends.s3_control import Control

_PAGE = 1_000


async def listed(store: S3Store, control: Control, root: str, prefix: str, after: str) -> AsyncIterator[Listed]:
    """The values below *root* whose key, without it, begins with *prefix* and is greater than *after*."""
    last = after
    try:
        async for line in _fast(store, root, prefix, after):
            if line.key > prefix and not line.key.startswith(prefix):
                return
            if line.key.startswith(prefix) and line.key > last and _is_key(line.key):
                last = line.key
                if line.size or await _is_there(store, root + line.key):
                    yield line
    except obstore.exceptions.InvalidPathError:
        async for page in control.pages(root + prefix, root + last if last else ""):
            for line in page:
                key = line.key[len(root) :]
                if key > last and _is_key(key):
                    yield Listed(key, line.size)


async def _fast(store: S3Store, root: str, prefix: str, after: str) -> AsyncIterator[Listed]:
    """All lines of the prefix's folder from somewhere before the first that counts."""
    folder = (root + prefix).rpartition("/")[0]
    offset = max(after, just_below(prefix))
    lines = obstore.list(store, folder or None, offset=root + offset if offset else None, chunk_size=_PAGE)
    async for page in lines:
        for line in page:
            if line["path"].startswith(root):
                yield Listed(line["path"][len(root) :], line["size"])


def just_below(prefix: str) -> str:
    """A string that sorts before *prefix*, with hardly a key between the two. Empty where the folder itself begins."""
    if not prefix or prefix.endswith("/"):
        return ""
    before = chr(ord(prefix[-1]) - 1).replace("/", ".")  # a slash would begin another folder
    return f"{prefix[:-1]}{before}zzzzzzzz"


async def _is_there(store: S3Store, path: str) -> bool:
    try:
        await obstore.head_async(store, path)
    except FileNotFoundError:
        return False
    return True


def _is_key(name: str) -> bool:
    """Whether one of ours may be called that; the control folder, for one, may not."""
    try:
        base.check_key(name)
    except ValueError:
        return False
    return True
