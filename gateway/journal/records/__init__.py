"""The records: small facts in the past tense, a file a subject, whose tags do not overlap.

`gateway/journal/apply/__init__.py` and what stands beside it is the one place that says what each does to the tables.
"""

from gateway.journal.records.base import FEATURE_LEVEL, RECORDS
from gateway.journal.records.bytes import BytesRecord
from gateway.journal.records.site import SiteRecord
from gateway.journal.records.tree import TreeRecord
from gateway.journal.records.uploads import UploadRecord
from gateway.journal.records.work import WorkRecord

__all__ = ["FEATURE_LEVEL", "RECORDS", "Record"]

Record = BytesRecord | TreeRecord | UploadRecord | WorkRecord | SiteRecord
