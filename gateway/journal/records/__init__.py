"""The records: small facts in the past tense, one file per subject. No two records have the same tag.

`gateway/journal/apply` defines what each record does to the tables.
"""

from gateway.journal.records.base import FEATURE_LEVEL, RECORDS
from gateway.journal.records.bytes import BytesRecord
from gateway.journal.records.site import SiteRecord
from gateway.journal.records.tree import TreeRecord
from gateway.journal.records.uploads import UploadRecord
from gateway.journal.records.work import WorkRecord

__all__ = ["FEATURE_LEVEL", "RECORDS", "Record"]

Record = BytesRecord | TreeRecord | UploadRecord | WorkRecord | SiteRecord
