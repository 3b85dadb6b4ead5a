"""`entrepot fsck`, `gc`, `backup`, `restore`: check, clean up, back up and restore a site."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.open_site import run_on_site
from gateway.cli.options import Json, SiteArgument
from gateway.cli.output import print_result, progress, step_progress

if TYPE_CHECKING:
    from gateway.blocks.fsck.findings import FsckReport
    from gateway.blocks.maintenance.gc import Waste
    from gateway.journal.history.backup import Manifest
    from gateway.site.site import Site

CLEAN = 0
FOUND = 3
"""Exit status of `fsck` if data is missing or damaged, and of `backup` if the journal is."""
UNCHECKED = 4
"""Exit status of `fsck` and `gc` if nothing is wrong as far as was checked, but not everything could be checked."""
DAY_SECONDS = 86_400.0
KEEP_NEWER_DAYS = 7.0

UnnamedMax = Annotated[
    int,
    typer.Option(
        "--unnamed-max",
        metavar="KEYS",
        min=0,
        help="Stop the listing of a backend after this number of keys that the journal does not name.",
    ),
]


def add_to(app: typer.Typer) -> None:
    """Add these commands to *app*."""
    app.command("fsck", short_help="Check the journal and the stored blocks.")(fsck)
    app.command("gc", short_help="Delete unused blocks now.")(gc)
    app.command("backup", short_help="Copy the journal and the config.")(backup)
    app.command("restore", short_help="Rehearse a restore, or restore a backup.")(restore)


def fsck(
    folder: SiteArgument,
    read: Annotated[bool, typer.Option("--read", help="Read and open every frame of every block.")] = False,
    replay: Annotated[
        bool, typer.Option("--replay", help="Compare every table with a replay of the whole journal.")
    ] = False,
    mend: Annotated[
        bool, typer.Option("--mend", help="Report bad copies to the served site, which repairs them from good ones.")
    ] = False,
    unnamed_max: UnnamedMax = 1_000_000,
    json: Json = False,
) -> int:
    """Check the journal, and its tables against each other and against the stored blocks. The site may be served.

    Exit status 0: nothing is wrong; wasted space is reported. 3: something is missing or damaged. 4: nothing is wrong
    as far as was checked, but a backend could not be reached or could not be listed completely."""
    from gateway.blocks.fsck.findings import Severity
    from gateway.cli.text import maintenance as maintenance_text
    from gateway.site.admin import maintenance

    async def work(site: Site) -> FsckReport:
        with step_progress(quiet=json) as on_progress:
            return await maintenance.fsck(
                site, read=read, replay=replay, mend=mend, unnamed_max=unnamed_max, progress=on_progress
            )

    report = run_on_site(folder, work, with_storage=True, strict=False)
    print_result(
        maintenance_text.fsck_to_dict(report), as_json=json, text=lambda: maintenance_text.fsck_to_text(report)
    )
    return {Severity.WRONG: FOUND, Severity.UNCHECKED: UNCHECKED}.get(report.worst, CLEAN)


def gc(
    folder: SiteArgument,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be deleted, and delete nothing.")
    ] = False,
    drop_newer: Annotated[
        bool,
        typer.Option(
            "--drop-newer",
            help="In a restored site: also delete data that was written after the backup, which is kept until the date "
            "that `status` prints. Cannot be undone.",
        ),
    ] = False,
    unnamed_max: UnnamedMax = 1_000_000,
    json: Json = False,
) -> int:
    """Delete unused blocks now, instead of waiting for the served site to do it.

    Exit status 4: a backend could not be reached or could not be listed completely; the others were cleaned up."""
    from gateway.cli.text import maintenance as maintenance_text
    from gateway.errors import InvalidArgument
    from gateway.site.admin import maintenance

    if dry_run and drop_newer:
        raise InvalidArgument("--dry-run and --drop-newer exclude each other")

    async def work(site: Site) -> Waste:
        with step_progress(quiet=json) as on_progress:
            return await maintenance.gc(
                site, dry_run=dry_run, drop_newer=drop_newer, unnamed_max=unnamed_max, progress=on_progress
            )

    waste = run_on_site(folder, work, with_storage=True)
    print_result(
        maintenance_text.waste_to_dict(waste),
        as_json=json,
        text=lambda: maintenance_text.waste_to_text(waste, dry_run=dry_run),
    )
    return UNCHECKED if waste.unchecked else CLEAN


def backup(
    folder: SiteArgument,
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="A new or empty folder.", show_default=False)],
    keep_days: Annotated[
        float, typer.Option("--keep-days", min=0, max=3_650, help="How long the blocks that the backup names are kept.")
    ] = 30.0,
    json: Json = False,
) -> int:
    """Copy the site's journal and config to TARGET, also while it is served, and check every record of the copy.

    Blocks are not copied; those that the backup names are kept for --keep-days. The master key is not in the backup:
    without it nothing can be read, so keep a copy of it elsewhere. Exit status 3: the journal is damaged, and only the
    tables of this backup can be restored."""
    from gateway.cli.text import backup as backup_text
    from gateway.site.admin import backup as backups

    async def work(site: Site) -> Manifest:
        with progress("copying the journal", quiet=json) as on_progress:
            return await backups.backup(site, target, keep_seconds=keep_days * DAY_SECONDS, progress=on_progress)

    manifest = run_on_site(folder, work)
    print_result(
        backup_text.to_dict(manifest, target), as_json=json, text=lambda: backup_text.to_text(manifest, target)
    )
    return FOUND if manifest.damage else CLEAN


def restore(
    target: Annotated[
        Path, typer.Argument(metavar="TARGET", help="The folder that `entrepot backup` wrote.", show_default=False)
    ],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty folder.", show_default=False)],
    master_key: Annotated[
        Path, typer.Option("--master-key", metavar="FILE", help="The site's master key.", show_default=False)
    ],
    claim_anyway: Annotated[
        list[str] | None,
        typer.Option(
            "--claim-anyway",
            metavar="NAME",
            help="Claim this backend even if it contains none of the blocks that it should. May be repeated.",
            show_default=False,
        ),
    ] = None,
    without: Annotated[
        list[str] | None,
        typer.Option(
            "--without",
            metavar="NAME",
            help="Leave out this backend, which is gone for good: it counts as lost. May be repeated.",
            show_default=False,
        ),
    ] = None,
    tables_only: Annotated[
        bool, typer.Option("--tables-only", help="If the backup's journal is damaged: restore its tables as they are.")
    ] = False,
    rehearse: Annotated[
        bool, typer.Option("--rehearse", help="Make a read-only site that leaves the original alone. The default.")
    ] = False,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Say what taking over the backends would do; with --yes, do it.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --take-over: take over now.")] = False,
    keep_newer_days: Annotated[
        float | None,
        typer.Option(
            "--keep-newer-days",
            min=0,
            max=365,
            show_default=False,
            help="With --take-over: how long data is kept that was written after the backup was made. [default: 7]",
        ),
    ] = None,
    json: Json = False,
) -> int:
    """Restore the backup in TARGET into DIR: as a read-only rehearsal, or with --take-over as the replacement of the
    original.

    A rehearsal reads the backup's data, and does not affect the original site.

    --take-over alone prints a plan, and changes nothing. --take-over --yes executes it: the site in DIR is the same
    site in a new incarnation. It takes over the backends, and the original stops serving within seconds. Data that was
    written after the backup is not in it, but is kept for --keep-newer-days, so that a newer backup can still be
    restored. Nothing is written outside DIR except the backends' markers."""
    from gateway.errors import InvalidArgument

    if rehearse and take_over:
        raise InvalidArgument("--rehearse and --take-over exclude each other")
    only_take_over = {
        "--yes": yes,
        "--claim-anyway": claim_anyway,
        "--without": without,
        "--keep-newer-days": keep_newer_days is not None,
    }
    for option, given in only_take_over.items():
        if given and not take_over:
            raise InvalidArgument(f"{option} is only for a restore with --take-over")
    keep_days = KEEP_NEWER_DAYS if keep_newer_days is None else keep_newer_days
    if not take_over:
        _rehearse(target, folder, master_key, tables_only=tables_only, as_json=json)
        return 0
    named = {"claim_anyway": claim_anyway or (), "without": without or ()}
    if not yes:
        return _print_takeover_plan(target, folder, master_key, keep_days, **named, as_json=json)
    _take_over(target, folder, master_key, keep_days, **named, tables_only=tables_only, as_json=json)
    return 0


def _rehearse(target: Path, folder: Path, master_key: Path, *, tables_only: bool, as_json: bool) -> None:
    from gateway.cli.text import rehearsal as rehearsal_text
    from gateway.site.admin.rehearse import rehearse as rehearse_restore
    from gateway.timing import timing_from_environment

    rehearsed = asyncio.run(rehearse_restore(target, folder, master_key, tables_only=tables_only))
    now_ns = timing_from_environment().clock.wall_ns()
    print_result(
        rehearsal_text.rehearsed_to_dict(rehearsed, folder),
        as_json=as_json,
        text=lambda: rehearsal_text.rehearsed_to_text(rehearsed, folder, now_ns),
    )


def _print_takeover_plan(
    target: Path,
    folder: Path,
    master_key: Path,
    keep_newer_days: float,
    *,
    claim_anyway: Sequence[str],
    without: Sequence[str],
    as_json: bool,
) -> int:
    """Print what a restore that takes over would do. Returns 1 if it would be refused."""
    from gateway.cli.text import rehearsal as rehearsal_text
    from gateway.site.admin.takeover_plan import plan_takeover
    from gateway.timing import timing_from_environment

    with step_progress(quiet=as_json) as on_progress:
        plan = asyncio.run(
            plan_takeover(target, folder, master_key, anyway=claim_anyway, without=without, progress=on_progress)
        )
    now_ns = timing_from_environment().clock.wall_ns()
    print_result(
        rehearsal_text.plan_to_dict(plan, keep_newer_days),
        as_json=as_json,
        text=lambda: rehearsal_text.plan_to_text(plan, now_ns, keep_newer_days),
    )
    return 1 if plan.refused else 0


def _take_over(
    target: Path,
    folder: Path,
    master_key: Path,
    keep_newer_days: float,
    *,
    claim_anyway: Sequence[str],
    without: Sequence[str],
    tables_only: bool,
    as_json: bool,
) -> None:
    from gateway.cli.text import restore as restore_text
    from gateway.site.admin.restore import restore as restore_site
    from gateway.timing import timing_from_environment

    restored = asyncio.run(
        restore_site(
            *(target, folder, master_key),
            anyway=claim_anyway,
            without=without,
            keep_newer_seconds=keep_newer_days * DAY_SECONDS,
            tables_only=tables_only,
        )
    )
    aged = timing_from_environment().clock.wall_ns() > restored.until_ns
    print_result(
        restore_text.to_dict(restored, folder, aged=aged),
        as_json=as_json,
        text=lambda: restore_text.to_text(restored, folder, aged=aged),
    )
