"""`entrepot fsck`, `gc`, `backup`, `restore`: check, clean up, back up and restore a site."""

from __future__ import annotations

import asyncio
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
    for command in (fsck, gc, backup, restore):
        app.command(command.__name__)(command)


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
    unnamed_max: UnnamedMax = 1_000_000,
    json: Json = False,
) -> int:
    """Delete now what is not used any more, instead of waiting for the served site to do it.

    Exit status 4: a backend could not be reached or could not be listed completely; the others were cleaned up."""
    from gateway.cli.text import maintenance as maintenance_text
    from gateway.site.admin import maintenance

    async def work(site: Site) -> Waste:
        with step_progress(quiet=json) as on_progress:
            return await maintenance.gc(site, dry_run=dry_run, unnamed_max=unnamed_max, progress=on_progress)

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
    json: Json = False,
) -> None:
    """Restore the backup in TARGET as a site in DIR: the same site, in a new incarnation.

    The restored site takes over the backends, and the original site stops serving within seconds. Data that was written
    after the backup is not in the restored site. Nothing is written outside DIR except the backends' markers."""
    from gateway.cli.text import restore as restore_text
    from gateway.site.admin.restore import restore as restore_site
    from gateway.timing import timing_from_environment

    restored = asyncio.run(
        restore_site(
            *(target, folder, master_key), anyway=claim_anyway or (), without=without or (), tables_only=tables_only
        )
    )
    aged = timing_from_environment().clock.wall_ns() > restored.until_ns
    print_result(
        restore_text.to_dict(restored, folder, aged=aged),
        as_json=json,
        text=lambda: restore_text.to_text(restored, folder, aged=aged),
    )
