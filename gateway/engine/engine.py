"""The engine: one class with all verbs, composed of the classes of the other modules."""

from __future__ import annotations

from gateway.engine.buckets import BucketVerbs
from gateway.engine.copies import CopyVerbs
from gateway.engine.deletes import DeleteVerbs
from gateway.engine.listings import ListingVerbs
from gateway.engine.posix_ops import PosixVerbs
from gateway.engine.uploads import UploadVerbs


class Engine(BucketVerbs, CopyVerbs, DeleteVerbs, UploadVerbs, ListingVerbs, PosixVerbs):
    """The verbs that S3 and files share. Each takes the caller first, and raises `gateway.errors`. For one event
    loop."""
