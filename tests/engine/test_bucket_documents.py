"""Documents of buckets through the engine: a change is seen by the next request, without reading the row each time."""

from __future__ import annotations

from gateway.engine.engine import Engine
from gateway.engine.types import Caller
from gateway.journal.tables import DocumentKind


async def test_a_changed_document_is_seen_at_once(engine: Engine, root: Caller) -> None:
    assert await engine.bucket_document(root, "tree", DocumentKind.CORS) is None
    for text in (b"first", b"second"):
        await engine.set_bucket_document(root, "tree", DocumentKind.CORS, text)
        assert await engine.bucket_document(root, "tree", DocumentKind.CORS) == text
    assert await engine.bucket_document(root, "tree", DocumentKind.TAGGING) is None
    await engine.remove_bucket_document(root, "tree", DocumentKind.CORS)
    assert await engine.bucket_document(root, "tree", DocumentKind.CORS) is None


async def test_a_new_bucket_of_the_same_name_has_no_documents(engine: Engine, root: Caller) -> None:
    await engine.create_bucket(root, "again", "")
    await engine.set_bucket_document(root, "again", DocumentKind.CORS, b"rules")
    await engine.delete_bucket(root, "again")
    await engine.create_bucket(root, "again", "")
    assert await engine.bucket_document(root, "again", DocumentKind.CORS) is None
