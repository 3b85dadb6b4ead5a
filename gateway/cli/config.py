"""`entrepot config …`, `plan` and `reload`: check and show a site's config, and make a served site adopt it.

Exit status 0: the config is valid, or in force in every process. 1: it is not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gateway.cli.open_site import read_site, run_on_view
from gateway.cli.options import Json, SiteArgument
from gateway.cli.output import print_result, print_text
from gateway.errors import Misconfigured

app = typer.Typer(help="The site's config file.", no_args_is_help=True)

_Site = Annotated[
    Path | None,
    typer.Option("--site", metavar="DIR", envvar="ENTREPOT_SITE", help="The site's folder.", show_default=False),
]
_File = Annotated[
    Path | None,
    typer.Argument(metavar="FILE", help="A config file; by default that of the site.", show_default=False),
]


def add_to(main: typer.Typer) -> None:
    """Add these commands to *main*."""
    main.add_typer(app, name="config")
    main.command("plan", short_help="Show which copies a config makes and drops.")(plan)
    main.command("reload", short_help="Adopt the edited config.")(reload)


@app.command("check")
def check(
    file: _File = None,
    site: _Site = None,
    open_backends: Annotated[
        bool,
        typer.Option(
            "--open", help="Also say what a reload would do, and open the backends for reading. Needs --site."
        ),
    ] = False,
    json: Json = False,
) -> int:
    """Check the config, and report all errors in it. Opens and changes nothing. With --site, also report the policies
    that name a backend which counts as lost.

    With --open, everything is checked that a reload does, and nothing is changed: secrets, endpoints, credentials,
    buckets and markers, what a reload would refuse, and which copies it would make and drop. Exit status 1: a reload
    would fail."""
    from gateway.config import load_text
    from gateway.config.loading import read
    from gateway.site.paths import journal_folder
    from gateway.site.replication_status import config_remarks

    path = _path(file, site)
    text = read(path)
    config = load_text(text, path.parent, str(path))
    remarks = [] if site is None else config_remarks(journal_folder(site, config), config.topology(site))
    result = {"config": str(path), "ok": True, "version": config.version, "remarks": remarks}
    lines = [f"{path} is valid: version {config.version}", *remarks]
    if not open_backends:
        print_result(result, as_json=json, text=lambda: lines)
        return 0
    if site is None:
        raise typer.BadParameter("--open needs the site's folder: --site DIR, or ENTREPOT_SITE")

    from gateway.cli.text import config_plan as config_plan_text  # only now: it imports what opens backends
    from gateway.site.admin.config_plan import plan_config

    plan = run_on_view(site, lambda view: plan_config(view, load_text(text, site, str(path))))
    print_result(
        {**result, "ok": plan.ok, **config_plan_text.to_dict(plan)},
        as_json=json,
        text=lambda: [*lines, *config_plan_text.to_text(plan)],
    )
    return 0 if plan.ok else 1


def plan(file: _File = None, site: _Site = None, json: Json = False) -> None:
    """Show which copies a config would have the keeper make and drop, over which lines, and at what price. Opens and
    changes nothing. Without FILE: what is still to be done under the config file of the site."""
    from gateway.cli.text import config_plan as config_plan_text
    from gateway.config import load_text
    from gateway.config.loading import read
    from gateway.site.admin.config_plan import plan_movement

    path = _path(file, site)
    if site is None:
        raise typer.BadParameter("name the site's folder with --site DIR or in ENTREPOT_SITE")
    topology = load_text(read(path), site, str(path)).topology(site)
    movement = read_site(site, lambda view: plan_movement(view.journal_path, topology))
    print_result(
        config_plan_text.movement_to_dict(movement),
        as_json=json,
        text=lambda: config_plan_text.movement_to_text(movement),
    )


@app.command("show")
def show(
    file: _File = None,
    site: _Site = None,
    effective: Annotated[
        bool,
        typer.Option("--effective", help="Include all defaults. If the site is served: the config in force."),
    ] = False,
    json: Json = False,
) -> None:
    """Print the config, as it is written or with all defaults. It contains no secrets, as the file has none."""
    import tomli_w

    from gateway.config import load_text
    from gateway.config.loading import read, tables_of
    from gateway.site.active_config import load_active

    path = _path(file, site)
    if effective:
        config = load_active(path.parent) if file is None else load_text(read(path), path.parent, str(path))
        tables: dict[str, Any] = config.to_dict()
        text = f"# version {config.version}\n{tomli_w.dumps(tables)}"
    else:
        text = read(path)
        load_text(text, path.parent, str(path))  # refuses an invalid file, which might contain a secret
        tables = tables_of(text)
    if json:
        print_result(tables, as_json=True, text=list)
    else:
        print_text(text)


@app.command("schema")
def schema() -> None:
    """Print the JSON schema of the config, for editors."""
    from gateway.config.schema import schema_text

    print_text(schema_text())


@app.command("default", short_help="Print the config that `init` writes.")
def default() -> None:
    """Print the config that `init` writes, with an explanation of every line."""
    from gateway.config import default_text

    print_text(default_text())


def reload(folder: SiteArgument, json: Json = False) -> None:
    """Make a served site adopt its edited config. Fails, with the reason, unless every process runs the new config."""
    from gateway.site.processes.config_reload import request

    outcome = request(folder)
    if not outcome.succeeded:
        raise Misconfigured(
            f"{outcome.why}\nversion {outcome.version} stays in force"
            + (" for now: the file is tried again automatically" if outcome.temporary else "")
            if outcome.outcome == "refused"
            else f"version {outcome.version} is in force, but {outcome.why}"
        )
    print_result(
        outcome.to_dict(),
        as_json=json,
        text=lambda: [
            f"version {outcome.version} is in force" + (", as before" if outcome.outcome == "unchanged" else "")
        ],
    )


def _path(file: Path | None, site: Path | None) -> Path:
    """Return *file*, or the config file of *site*."""
    from gateway.config import CONFIG_NAME

    if file is not None:
        return file
    if site is None:
        raise typer.BadParameter("name a config file, or the site's folder with --site DIR or in ENTREPOT_SITE")
    return site / CONFIG_NAME
