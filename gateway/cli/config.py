"""`entrepot config …` and `entrepot reload`: looking at a site's config, and having a served site take it over.

0: sound, or in force in every process. 1: not.
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
    typer.Argument(metavar="FILE", help="A config that stands elsewhere; else the site's own.", show_default=False),
]


def add_to(main: typer.Typer) -> None:
    """Make these commands of *main*."""
    main.add_typer(app, name="config")
    main.command("reload")(reload)


@app.command("check")
def check(file: _File = None, site: _Site = None, json: Json = False) -> None:
    """Say what is wrong with the config, all of it, if anything is. Opens and changes nothing; of a site (--site) it
    also says which policies name a backend that was given up as lost."""
    from gateway.config import load_text
    from gateway.config.loading import read
    from gateway.site.paths import journal_folder
    from gateway.site.replication_status import config_remarks

    path = _path(file, site)
    config = load_text(read(path), path.parent, str(path))
    remarks = [] if site is None else config_remarks(journal_folder(site, config), config.topology(site))
    found = {"config": str(path), "ok": True, "version": config.version, "remarks": remarks}
    print_result(found, as_json=json, text=lambda: [f"{path} is sound: version {config.version}", *remarks])


@app.command("show")
def show(
    file: _File = None,
    site: _Site = None,
    effective: Annotated[
        bool,
        typer.Option(
            "--effective", help="With every default, as the processes see it; while it is served, the one in force."
        ),
    ] = False,
    json: Json = False,
) -> None:
    """The config: as it is written, or with all that holds. There is no secret in it: none stands in the file."""
    from gateway.config import load_text
    from gateway.config.loading import read, tables_of
    from gateway.config.writing import to_toml
    from gateway.site.active_config import load_active

    path = _path(file, site)
    if effective:
        config = load_active(path.parent) if file is None else load_text(read(path), path.parent, str(path))
        found: dict[str, Any] = config.plain()
        text = f"# version {config.version}\n{to_toml(found)}"
    else:
        text = read(path)
        load_text(text, path.parent, str(path))  # what is not sound might hold a secret
        found = tables_of(text)
    if json:
        print_result(found, as_json=True, text=list)
    else:
        print_text(text)


@app.command("schema")
def schema() -> None:
    """The JSON schema of the config, for editors."""
    from gateway.config.schema import schema_text

    print_text(schema_text())


@app.command("default")
def default() -> None:
    """The config that `init` writes, every line explained."""
    from gateway.config import default_text

    print_text(default_text())


def reload(folder: SiteArgument, json: Json = False) -> None:
    """Have a served site take over its edited config. Fails, and says why, unless every process runs it then."""
    from gateway.site.processes.config_reload import request

    outcome = request(folder)
    if not outcome.well:
        raise Misconfigured(
            f"{outcome.why}\nversion {outcome.version} stays in force"
            + (" for now: the file is tried again by itself" if outcome.passing else "")
            if outcome.outcome == "refused"
            else f"version {outcome.version} is in force, but {outcome.why}"
        )
    print_result(
        outcome._asdict(),
        as_json=json,
        text=lambda: [
            f"version {outcome.version} is in force" + (", as before" if outcome.outcome == "unchanged" else "")
        ],
    )


def _path(file: Path | None, site: Path | None) -> Path:
    from gateway.config import CONFIG_NAME

    if file is not None:
        return file
    if site is None:
        raise typer.BadParameter("name a config file, or the site's folder with --site DIR or in ENTREPOT_SITE")
    return site / CONFIG_NAME
