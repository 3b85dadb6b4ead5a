"""`entrepot init`, `status`, `version`, `takeover`: create a site, show its state, take its backends over."""

from __future__ import annotations

import asyncio
import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from gateway.cli.open_site import read_site, run_on_site
from gateway.cli.options import Json, SiteArgument
from gateway.cli.output import format_time, print_line, print_result

if TYPE_CHECKING:
    from gateway.site.admin.server_status import ServerStatus
    from gateway.site.replication_status import ReplicationStatus
    from gateway.site.site import Site
    from gateway.site.site_view import SiteView
    from gateway.site.storage.backend_trouble import CombinedTrouble

UNAVAILABLE = 3
"""Exit status of `status` if a backend is unavailable, or the server does not answer."""
ROOT_ACCESS_KEY = "ENTREPOT_ROOT_ACCESS_KEY"
ROOT_SECRET_KEY = "ENTREPOT_ROOT_SECRET_KEY"  # noqa: S105 (a variable's name)


def add_to(app: typer.Typer) -> None:
    """Add these commands to *app*."""
    app.command("init", short_help="Create a site.")(init)
    app.command("status", short_help="Show the state of a site and its backends.")(status)
    app.command("version", short_help="Print the versions of Entrepot and its parts.")(version)
    app.command("takeover", short_help="Take the backends over from another copy.")(takeover)


def init(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", envvar="ENTREPOT_SITE", help="A new or empty folder.", show_default=False)
    ],
    name: Annotated[str, typer.Option("--name", help="The name of the site, for people.")] = "entrepot",
    sealing: Annotated[
        str,
        typer.Option("--sealing", help="How blocks are sealed: aes-256-gcm (encrypted), or tagged (not encrypted)."),
    ] = "aes-256-gcm",
    json: Json = False,
) -> None:
    """Create a site in DIR: its config, its keys, an empty journal and the root user.

    The root user's access key and secret key come from ENTREPOT_ROOT_ACCESS_KEY and ENTREPOT_ROOT_SECRET_KEY, or are
    drawn at random."""
    from gateway.site.admin.create_site import create_site

    access_key, secret = os.environ.get(ROOT_ACCESS_KEY) or None, os.environ.get(ROOT_SECRET_KEY) or None
    created = asyncio.run(create_site(folder, name=name, mode=sealing, access_key=access_key, secret=secret))
    facts = {
        "site": created.site,
        "folder": str(created.folder),
        "access_key": created.access_key,
        "secret_key_file": str(created.secret_file),
    }
    print_result(
        facts,
        as_json=json,
        text=lambda: [
            f"made site {created.site} in {folder}",
            f"access key: {created.access_key}",
            f"secret key: in {created.secret_file}",
            f"serve it: entrepot serve {folder}",
        ],
    )


def takeover(
    folder: SiteArgument,
    yes: Annotated[
        bool,
        typer.Option(
            "--yes", help="Take over: the other copy of this folder stops serving. Its records stay in its own folder."
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Compare this folder's history with that of another copy of the folder, which uses the backends now. With --yes,
    take the backends over.

    No record of this folder is lost. What only the other copy names is kept for `journal.fork_grace_hours`."""
    from gateway.cli.text import takeover as takeover_text
    from gateway.site.admin.takeover import HistoryComparison, take_over

    async def work(site: Site) -> HistoryComparison:
        return await take_over(site, confirmed=yes)

    comparison = run_on_site(folder, work)
    print_result(
        takeover_text.to_dict(comparison), as_json=json, text=lambda: takeover_text.to_text(comparison, folder)
    )


class Condition(StrEnum):
    """What `status --wait` waits for."""

    SETTLED = "settled"


def status(
    folder: SiteArgument,
    watch: Annotated[bool, typer.Option("--watch", help="Print the status again every two seconds, until ^C.")] = False,
    wait: Annotated[
        Condition | None,
        typer.Option(
            "--wait",
            help="Return once all copies are where they should be, except those of blocks that are lost.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> int:
    """Show who serves the site, what it stores, and which copies are not yet complete.

    Exit status 3: the site is served, and either a backend is unavailable or the server does not answer."""
    from gateway.timing import timing_from_environment

    timing = timing_from_environment()
    while watch or wait is not None:
        shown = _read_status(folder)
        if watch:
            print_line(f"-- {format_time(timing.clock.wall_ns())}")
            _print_status(shown, as_json=json)
        if wait is not None and shown.replication.settled:
            break
        asyncio.run(timing.clock.sleep(timing.processes.status_seconds))
    if watch:
        return 0
    shown = _read_status(folder)
    _print_status(shown, as_json=json)
    unavailable = any(trouble.unavailable for trouble in shown.troubles.values())
    return UNAVAILABLE if unavailable or shown.server.no_answer else 0


class _Shown(NamedTuple):
    """What `status` shows."""

    counts: dict[str, Any]
    replication: ReplicationStatus
    server: ServerStatus
    file_version: str
    """See `config_file_version`."""
    troubles: dict[str, CombinedTrouble]
    """What is wrong with backends, by name, except those that were given up."""


def _read_status(folder: Path) -> _Shown:
    from gateway.site import replication_status
    from gateway.site.admin.server_status import config_file_version, read_server_status
    from gateway.site.admin.site_counts import read_site_counts

    def read(site: SiteView) -> tuple[dict[str, Any], ReplicationStatus]:
        counts = {**read_site_counts(site), "config": site.config.version}
        topology = site.config.topology(site.folder)
        return counts, replication_status.count_status(site.journal_path, topology, site.timing.clock)

    counts, replication = read_site(folder, read)
    server = read_server_status(folder)
    lost = {use.name for use in replication.backends if use.state == "lost"}  # processes learn that within a second
    troubles = {name: trouble for name, trouble in server.backend_troubles.items() if name not in lost}
    return _Shown(counts, replication, server, config_file_version(folder), troubles)


def _print_status(shown: _Shown, *, as_json: bool) -> None:
    from gateway.cli.text import replication as replication_text
    from gateway.cli.text import server_status as server_status_text

    facts = {
        **shown.counts,
        "config_file": shown.file_version,
        **server_status_text.to_dict(shown.server._replace(backend_troubles=shown.troubles)),
        **replication_text.to_dict(shown.replication),
    }

    def to_text() -> list[str]:
        counts = {**shown.counts, "serving": facts["serving"]}
        rehearsal, kept_until_ns = counts.pop("rehearsal"), counts.pop("keeps_newer_until_ns")
        lines = ["REHEARSAL of a restore: read-only"] if rehearsal else []
        lines += [f"{key}: {_format_fact(key, value)}" for key, value in counts.items()]
        if kept_until_ns is not None:
            lines.append(f"deletes nothing before: {format_time(kept_until_ns)}, since it was restored from a backup")
        lines += server_status_text.to_text(shown.server, shown.file_version)
        return [*lines, *replication_text.to_text(shown.replication, shown.troubles)]

    print_result(facts, as_json=as_json, text=to_text)


def print_version(wanted: bool) -> None:
    """Print the version of Entrepot, and end the command, if that is *wanted*."""
    if wanted:
        from gateway import __version__

        print_line(f"entrepot {__version__}")
        raise typer.Exit


def version(json: Json = False) -> None:
    """Print the versions of Entrepot, Python and SQLite."""
    import platform
    import sqlite3

    from gateway import __version__

    facts = {"entrepot": __version__, "python": platform.python_version(), "sqlite": sqlite3.sqlite_version}
    print_result(facts, as_json=json, text=lambda: [f"{key} {value}" for key, value in facts.items()])


def _format_fact(key: str, value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name}={_format_fact(name, each)}" for name, each in value.items())
    if key == "since":
        return format_time(int(value * 1e9))
    return "no" if value is None else str(value)
