"""`entrepot backend …` and `entrepot explain`: where blocks are stored and why, and repairs of a single backend."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.cli.open_site import read_site, run_on_site
from gateway.cli.options import Json, SiteOption
from gateway.cli.output import format_table, print_result, step_progress
from gateway.errors import InvalidArgument

if TYPE_CHECKING:
    from gateway.site.admin.backend_check import BackendCheckResult
    from gateway.site.admin.claim_backend import ClaimResult
    from gateway.site.admin.lost_objects import Losses
    from gateway.site.site import Site

app = typer.Typer(help="The backends, which store blocks.", no_args_is_help=True)

CHECK_FAILED = 3
"""Exit status of `backend test` if a guarantee is not met."""
Name = Annotated[str, typer.Argument(metavar="NAME", help="The backend's name in the config.", show_default=False)]


@app.command("list")
def list_(site: SiteOption, json: Json = False) -> None:
    """List what each backend stores, and whether it responds."""
    from gateway.site import replication_status

    async def work(opened: Site) -> list[dict[str, Any]]:
        status = await replication_status.read_status(opened.journal_path, opened.storage.topology, opened.timing.clock)
        health = await replication_status.check_backends(opened)
        return [{**use._asdict(), "health": health.get(use.name, "")} for use in status.backends]

    rows = run_on_site(site, work, with_storage=True, strict=False)
    titles = ("NAME", "CLUSTER", "STATE", "BLOCKS", "BYTES", "LEAVING", "HEALTH")
    print_result(
        rows,
        as_json=json,
        text=lambda: format_table(titles, [[str(row[title.lower()]) for title in titles] for row in rows]),
    )


@app.command("lost", short_help="List what would be lost with a backend.")
def lost(
    site: SiteOption,
    name: Annotated[
        str, typer.Argument(metavar="[NAME]", help="The backend's name in the config.", show_default=False)
    ] = "",
    forget: Annotated[
        bool,
        typer.Option(
            "--forget",
            help="Give the backend up, irreversibly: its copies count as lost, and are made again elsewhere.",
        ),
    ] = False,
    no_check: Annotated[
        bool,
        typer.Option("--no-check", help="Trust the journal about copies on other backends, instead of checking them."),
    ] = False,
    json: Json = False,
) -> None:
    """List the objects that would be lost with this backend, because it has the only copy of some of their bytes.

    If the journal names copies of a block on other backends, the command checks that they exist.

    Without NAME: list the objects with bytes that have no good copy left."""
    from gateway.cli.text import lost_objects as lost_objects_text
    from gateway.site.admin.lost_objects import find_losses

    async def work(opened: Site) -> Losses:
        with step_progress(quiet=json) as on_progress:
            return await find_losses(opened, name, forget=forget, check=not no_check, progress=on_progress)

    losses = run_on_site(site, work, with_storage=bool(name) and not no_check, strict=False)
    print_result(lost_objects_text.to_dict(losses), as_json=json, text=lambda: lost_objects_text.to_text(losses))


@app.command("retry", short_help="Retry blocks that were set aside or are lost.")
def retry(site: SiteOption, json: Json = False) -> None:
    """Retry now the blocks that were set aside or are lost, which are otherwise retried once a day."""
    from gateway.site.admin.retry_work import retry_failed_work

    async def work(opened: Site) -> int:
        return await retry_failed_work(opened.store, opened.journal, opened.timing.clock)

    count = run_on_site(site, work)
    print_result({"blocks": count}, as_json=json, text=lambda: [f"{count} block(s) are retried now"])


@app.command("claim", short_help="Restore the marker of a backend.")
def claim(
    name: Name,
    site: SiteOption,
    anyway: Annotated[
        bool,
        typer.Option("--anyway", help="Claim it even if it has none of its blocks. Its copies are made again."),
    ] = False,
    json: Json = False,
) -> None:
    """Restore this site's marker on a backend that lost it.

    Fails if the backend has the marker of another site or of a later incarnation of this site. Also fails if none of
    the blocks that should be there is found: then it may be another disk or bucket."""
    from gateway.cli.text import claim_backend as claim_backend_text
    from gateway.site.admin.claim_backend import reclaim_backend

    async def work(opened: Site) -> ClaimResult:
        return await reclaim_backend(opened, name, anyway=anyway)

    result = run_on_site(site, work, with_storage=True, strict=False)
    print_result(claim_backend_text.to_dict(result), as_json=json, text=lambda: claim_backend_text.to_text(result))


@app.command("test", short_help="Test a backend, and measure its speed.")
def test(
    name: Name,
    site: SiteOption,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.1, max=60, help="The duration of each measurement.")
    ] = 1.0,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="A config that names a backend which is not in use yet. [default: that of the site]",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> int:
    """Test each guarantee of a backend that Entrepot relies on, and measure its speed. Leaves nothing behind.

    Exit status 3: a guarantee is not met."""
    from gateway.cli.text import backend_check as backend_check_text
    from gateway.config import load_text
    from gateway.config.loading import read
    from gateway.site.admin.backend_check import check_backend

    new = None if config is None else load_text(read(config), site, str(config))

    async def work(opened: Site) -> BackendCheckResult:
        return await check_backend(opened, name, seconds, config=new)

    result = run_on_site(site, work, with_storage=True, strict=False)
    print_result(backend_check_text.to_dict(result), as_json=json, text=lambda: backend_check_text.to_text(result))
    return 0 if result.passed else CHECK_FAILED


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
    from gateway.cli.text import explain as explain_text
    from gateway.config.units import parse_size
    from gateway.site.admin.explain import explain as explain_object
    from gateway.site.admin.server_status import read_server_status

    try:
        size_bytes = parse_size(int(size) if size.isdecimal() else size) if size else None
    except ValueError as error:
        raise InvalidArgument(str(error)) from error

    explanation = read_site(site, lambda opened: explain_object(opened, address, cluster, user, version, size_bytes))
    troubles = read_server_status(site).backend_troubles
    print_result(
        explain_text.to_dict(explanation, troubles),
        as_json=json,
        text=lambda: explain_text.to_text(explanation, troubles),
    )
