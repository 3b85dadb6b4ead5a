"""The front desk: one class with every verb, made of the parts beside this file."""

from __future__ import annotations

from gateway.engine.buckets import Buckets
from gateway.engine.copies import Copies
from gateway.engine.deletes import Removals
from gateway.engine.listings import Listings
from gateway.engine.posix_ops import Names
from gateway.engine.uploads import Uploads


class Engine(Buckets, Copies, Removals, Uploads, Listings, Names):
    """What S3 and POSIX ask. Each verb takes who asks first, and raises `gateway.errors`. For one event loop."""
