"""`entrepot config …` and `entrepot reload`: check and show a site's config, and make a served site adopt it.

Exit status 0: the config is valid, or in force in every process. 1: it is not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

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
    main.command("reload")(reload)


@app.command("check")
def check(file: _File = None, site: _Site = None, json: Json = False) -> None:
    """Check the config, and report all errors in it. Opens and changes nothing. With --site, also report the policies
    that name a backend which counts as lost."""
    from gateway.config import load_text
    from gateway.config.loading import read
    from gateway.site.paths import journal_folder
    from gateway.site.replication_status import config_remarks

    path = _path(file, site)
    config = load_text(read(path), path.parent, str(path))
    remarks = [] if site is None else config_remarks(journal_folder(site, config), config.topology(site))
    result = {"config": str(path), "ok": True, "version": config.version, "remarks": remarks}
    print_result(result, as_json=json, text=lambda: [f"{path} is valid: version {config.version}", *remarks])


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


@app.command("default")
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
