"""`entrepot backend …`, `entrepot explain`: where data is stored, and why; and what to do if a backend is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.cli.open_site import run_on_site
from gateway.cli.options import Json, SiteOption
from gateway.cli.output import format_table, print_result, step_progress
from gateway.errors import InvalidArgument

if TYPE_CHECKING:
    from gateway.site.admin.backend_check import BackendCheckResult
    from gateway.site.admin.lost_objects import Losses
    from gateway.site.site import Site

app = typer.Typer(help="The places that store blocks.", no_args_is_help=True)

BROKEN = 3
"""`backend test` found a promise that is not kept."""
Name = Annotated[str, typer.Argument(metavar="NAME", help="As the config names it.", show_default=False)]


@app.command("list")
def list_(site: SiteOption, json: Json = False) -> None:
    """What each backend holds, and whether it answers."""
    from gateway.site import replication_status

    async def work(opened: Site) -> list[dict[str, Any]]:
        found = await replication_status.read_status(opened.journal_path, opened.storage.topology, opened.timing.clock)
        health = await replication_status.check_backends(opened)
        return [{**use._asdict(), "health": health.get(use.name, "")} for use in found.backends]

    rows = run_on_site(site, work, with_storage=True, strict=False)
    titles = ("NAME", "CLUSTER", "STATE", "BLOCKS", "BYTES", "LEAVING", "HEALTH")
    print_result(
        rows,
        as_json=json,
        text=lambda: format_table(titles, [[str(row[title.lower()]) for title in titles] for row in rows]),
    )


@app.command("lost")
def lost(
    site: SiteOption,
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="As the config names it.", show_default=False)] = "",
    forget: Annotated[
        bool, typer.Option("--forget", help="Give it up for good: its copies count as deleted, and others are made.")
    ] = False,
    no_check: Annotated[
        bool,
        typer.Option("--no-check", help="Trust the journal about copies on other backends, and ask for none."),
    ] = False,
    json: Json = False,
) -> None:
    """List the objects that would be lost with this backend, since it has the only copy of some of their bytes.

    The other backends are asked for each block that the journal names there, too.

    Without NAME: list the objects with bytes that have no good copy left."""
    from gateway.cli import text_lost_objects
    from gateway.site.admin.lost_objects import find_losses

    async def work(opened: Site) -> Losses:
        with step_progress(quiet=json) as told:
            return await find_losses(opened, name, forget=forget, check=not no_check, progress=told)

    losses = run_on_site(site, work, with_storage=bool(name) and not no_check, strict=False)
    print_result(text_lost_objects.to_dict(losses), as_json=json, text=lambda: text_lost_objects.to_text(losses))


@app.command("retry")
def retry(site: SiteOption, json: Json = False) -> None:
    """Have blocks that were set aside, or that are lost, tried again now instead of once a day."""
    from gateway.site.admin.retry_work import retry_failed_work

    async def work(opened: Site) -> int:
        return await retry_failed_work(opened.store, opened.journal, opened.timing.clock)

    count = run_on_site(site, work)
    print_result({"blocks": count}, as_json=json, text=lambda: [f"{count} block(s) are tried again now"])


@app.command("claim")
def claim(
    name: Name,
    site: SiteOption,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Also where nothing lies there that should: its copies are made anew.")
    ] = False,
    json: Json = False,
) -> None:
    """Put this site's marker on a backend's place again, which lost it.

    Refused where another site's marker stands there, or a later incarnation's of this one, and where none of the blocks
    that should lie there does: then it may be another disk or bucket."""
    from gateway.site.admin import claim_backend

    async def work(opened: Site) -> claim_backend.ClaimResult:
        return await claim_backend.reclaim_backend(opened, name, anyway=anyway)

    found = run_on_site(site, work, with_storage=True, strict=False)
    print_result(claim_backend.plain(found), as_json=json, text=lambda: claim_backend.spell(found))


@app.command("test")
def test(
    name: Name,
    site: SiteOption,
    seconds: Annotated[float, typer.Option("--seconds", min=0.1, max=60, help="For each measurement.")] = 1.0,
    json: Json = False,
) -> int:
    """Try a backend for every promise that is relied on, and measure it. Leaves nothing there.

    Exit status 3: a promise is not kept."""
    from gateway.site.admin import backend_check

    async def work(opened: Site) -> BackendCheckResult:
        return await backend_check.check_backend(opened, name, seconds)

    found = run_on_site(site, work, with_storage=True, strict=False)
    print_result(backend_check.plain(found), as_json=json, text=lambda: backend_check.spell(found))
    return 0 if found.kept else BROKEN


def explain(
    address: Annotated[
        str, typer.Argument(metavar="s3://BUCKET/KEY", help="The object, which need not exist.", show_default=False)
    ],
    site: SiteOption,
    cluster: Annotated[
        str, typer.Option("--from", metavar="CLUSTER", help="The cluster of the reader; by default the site's.")
    ] = "",
    user: Annotated[str, typer.Option("--user", help="The user who would write it.")] = "root",
    size: Annotated[
        str,
        typer.Option("--size", metavar="SIZE", help="The size of the write, like '64 MiB'; by default the object's."),
    ] = "",
    version: Annotated[
        str, typer.Option("--version", metavar="ID", help="The object's version; by default the current one.")
    ] = "",
    json: Json = False,
) -> None:
    """Show where the bytes of a key would be stored, where they are stored, in which order copies are read, and why."""
    from gateway.cli import text_explain
    from gateway.config.units import parse_size
    from gateway.site.admin.explain import Explanation
    from gateway.site.admin.explain import explain as explain_object

    try:
        size_bytes = parse_size(int(size) if size.isdecimal() else size) if size else None
    except ValueError as error:
        raise InvalidArgument(str(error)) from error

    async def work(opened: Site) -> Explanation:
        return explain_object(opened, address, cluster, user, version, size_bytes)

    explanation = run_on_site(site, work)
    print_result(text_explain.to_dict(explanation), as_json=json, text=lambda: text_explain.to_text(explanation))
