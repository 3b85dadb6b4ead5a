"""`entrepot keys …`: rotate the master key, renew the ring key, list the ring keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from gateway.cli.open_site import read_site, run_on_site
from gateway.cli.options import Json, SiteOption
from gateway.cli.output import format_table, format_time, print_result, progress

if TYPE_CHECKING:
    from gateway.site.admin.key_rotation import RotationResult
    from gateway.site.site import Site

app = typer.Typer(
    help="The keys of a site: ring keys seal blocks; the master key encrypts the ring keys.",
    short_help="The ring keys and the master key.",
    no_args_is_help=True,
)


@app.command("rotate", short_help="Make a new master key.")
def rotate(site: SiteOption, json: Json = False) -> None:
    """Make a new master key, and wrap all ring keys and secrets under it. No block is rewritten."""
    from gateway.site.admin import key_rotation

    async def work(opened: Site) -> RotationResult:
        with progress("wrapping keys", quiet=json) as on_progress:
            return await key_rotation.rotate_master_key(opened, on_progress)

    result = run_on_site(site, work)
    what = "finished an earlier rotation" if result.finished_earlier else f"made master key {result.master}"
    print_result(
        result._asdict(),
        as_json=json,
        text=lambda: [f"{what}; {result.ring_keys} ring key(s) and {result.secrets} secret(s) were wrapped under it"],
    )


@app.command("renew", short_help="Make a new ring key for new blocks.")
def renew(site: SiteOption, json: Json = False) -> None:
    """Make a new ring key, which seals all blocks that are written from now on."""
    from gateway.site.admin import key_rotation

    ring_key = f"{run_on_site(site, key_rotation.renew_ring_key):016x}"
    print_result(
        {"ring_key": ring_key},
        as_json=json,
        text=lambda: [f"new blocks are sealed with ring key {ring_key} from now on"],
    )


@app.command("list")
def list_(site: SiteOption, json: Json = False) -> None:
    """List the ring keys, and how many blocks each has sealed."""
    from gateway.site.admin import key_rotation

    keys = read_site(site, key_rotation.list_ring_keys)
    print_result(
        [key._asdict() for key in keys],
        as_json=json,
        text=lambda: format_table(
            ("RING KEY", "TENANT", "MODE", "MASTER KEY", "MADE", "BLOCKS", ""),
            [
                (
                    key.id,
                    key.tenant,
                    key.mode,
                    key.master,
                    format_time(key.made_ns),
                    str(key.blocks),
                    "active" if key.active else "",
                )
                for key in keys
            ],
        ),
    )
