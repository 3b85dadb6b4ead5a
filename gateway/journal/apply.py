"""What each record does to the tables: the only code that changes truth. Pure: rows in, rows out.

`apply` is a closed `match`; what a record does stands in a function of the room that it belongs to, beside this file.
Nothing here draws an id, a time or a random number, and nothing depends on anything but the record, its number and
the rows: so replaying the journal into an empty store gives identical truth.
"""

from __future__ import annotations

from typing import assert_never

from gateway.journal import apply_bytes, apply_site, apply_tree, apply_uploads, apply_work
from gateway.journal.records import (
    AccessKeyGone,
    AccessKeyMade,
    AccessKeyResealed,
    BackendLost,
    BackendNamed,
    BackendSetNamed,
    BlockBackendsSet,
    BlocksForgotten,
    BodyMade,
    BucketGone,
    BucketMade,
    BucketSettingsSet,
    BucketVersioningSet,
    CopiesCleared,
    CopySuspected,
    DirAttributesSet,
    DirGone,
    DirMade,
    DirXattrsSet,
    EntryMoved,
    ExtentsMoved,
    FeatureRaised,
    FileAttributesSet,
    FileContentSet,
    FileHeadersSet,
    FileMade,
    FileXattrsSet,
    IncarnationStarted,
    NamePut,
    PartPut,
    PartsDropped,
    PartsJoined,
    PlanAdvanced,
    PolicyNamed,
    Record,
    RingKeyMade,
    RingKeyRewrapped,
    RunMade,
    SessionEnded,
    SessionForgotten,
    SessionOpened,
    SessionSwept,
    SiteFounded,
    TakenApart,
    TenantMade,
    UploadEnded,
    UploadForgotten,
    UploadMade,
    UserGone,
    UserMade,
    VersionGone,
    WorkBegun,
    WorkDone,
    WorkFailed,
    WorkNoted,
)
from gateway.journal.rows import Rows


def apply(record: Record, rows: Rows, number: int) -> None:
    """Do what *record*, the *number*-th of the journal, says. Raises `Missing` for rows that are not in memory."""
    match record:
        # those of every PUT first
        case NamePut():
            apply_tree.name_put(record, rows)
        case FileMade():
            apply_tree.file_made(record, rows)
        case RunMade():
            apply_bytes.run_made(record, rows)
        case TakenApart():
            apply_bytes.taken_apart(record, rows, number)
        case VersionGone():
            apply_tree.version_gone(record, rows)
        case PartPut():
            apply_uploads.part_put(record, rows)
        case DirMade():
            apply_tree.dir_made(record, rows)
        case DirGone():
            apply_tree.dir_gone(record, rows)
        case EntryMoved():
            apply_tree.entry_moved(record, rows)
        case FileAttributesSet():
            apply_tree.file_attributes_set(record, rows)
        case DirAttributesSet():
            apply_tree.dir_attributes_set(record, rows)
        case FileXattrsSet():
            apply_tree.file_xattrs_set(record, rows)
        case DirXattrsSet():
            apply_tree.dir_xattrs_set(record, rows)
        case FileHeadersSet():
            apply_tree.file_headers_set(record, rows)
        case FileContentSet():
            apply_tree.file_content_set(record, rows)
        case BucketMade():
            apply_tree.bucket_made(record, rows)
        case BucketGone():
            apply_tree.bucket_gone(record, rows)
        case BucketVersioningSet():
            apply_tree.bucket_versioning_set(record, rows)
        case BucketSettingsSet():
            apply_tree.bucket_settings_set(record, rows)
        case BodyMade():
            apply_bytes.body_made(record, rows)
        case PartsJoined():
            apply_uploads.parts_joined(record, rows)
        case ExtentsMoved():
            apply_bytes.extents_moved(record, rows, number)
        case BlocksForgotten():
            apply_bytes.blocks_forgotten(record, rows)
        case BlockBackendsSet():
            apply_work.block_backends_set(record, rows, number)
        case WorkNoted():
            apply_work.work_noted(record, rows)
        case WorkBegun():
            apply_work.work_begun(record, rows, number)
        case WorkDone():
            apply_work.work_done(record, rows)
        case WorkFailed():
            apply_work.work_failed(record, rows)
        case CopySuspected():
            apply_work.copy_suspected(record, rows)
        case CopiesCleared():
            apply_work.copies_cleared(record, rows)
        case PlanAdvanced():
            apply_work.plan_advanced(record, rows)
        case BackendLost():
            apply_work.backend_lost(record, rows)
        case UploadMade():
            apply_uploads.upload_made(record, rows)
        case UploadEnded():
            apply_uploads.upload_ended(record, rows)
        case PartsDropped():
            apply_uploads.parts_dropped(record, rows)
        case UploadForgotten():
            apply_uploads.upload_forgotten(record, rows)
        case SessionOpened():
            apply_site.session_opened(record, rows)
        case SessionEnded():
            apply_site.session_ended(record, rows)
        case SessionSwept():
            apply_site.session_swept(record, rows)
        case SessionForgotten():
            apply_site.session_forgotten(record, rows)
        case BackendNamed():
            apply_site.backend_named(record, rows)
        case BackendSetNamed():
            apply_site.backend_set_named(record, rows)
        case PolicyNamed():
            apply_site.policy_named(record, rows)
        case TenantMade():
            apply_site.tenant_made(record, rows)
        case UserMade():
            apply_site.user_made(record, rows)
        case UserGone():
            apply_site.user_gone(record, rows)
        case AccessKeyMade():
            apply_site.access_key_made(record, rows)
        case AccessKeyGone():
            apply_site.access_key_gone(record, rows)
        case AccessKeyResealed():
            apply_site.access_key_resealed(record, rows)
        case RingKeyMade():
            apply_site.ring_key_made(record, rows)
        case RingKeyRewrapped():
            apply_site.ring_key_rewrapped(record, rows)
        case SiteFounded():
            apply_site.site_founded(record, rows)
        case IncarnationStarted():
            apply_site.incarnation_started(record, rows)
        case FeatureRaised():
            apply_site.feature_raised(record, rows)
        case _:
            assert_never(record)
