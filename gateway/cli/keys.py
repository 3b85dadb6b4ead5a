"""`entrepot keys …`: the keys that seal what is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from gateway.cli.options import Json, SiteOption
from gateway.cli.output import progress, table, tell, when
from gateway.cli.users import on_site

if TYPE_CHECKING:
    from gateway.site.admin.key_rotation import RingKeyFacts, Rotated
    from gateway.site.site import Site

app = typer.Typer(help="The keys that seal what is stored.", no_args_is_help=True)


@app.command("rotate")
def rotate(site: SiteOption, json: Json = False) -> None:
    """Make a new master key, and wrap all ring keys and secrets under it. No data is written anew."""
    from gateway.site.admin import key_rotation

    async def work(opened: Site) -> Rotated:
        with progress("wrapping keys", quiet=json) as told:
            return await key_rotation.rotate(opened, told)

    done = on_site(site, work)
    what = "finished an earlier rotation" if done.finished_earlier else f"made master key {done.master}"
    tell(
        done._asdict(),
        as_json=json,
        text=lambda: [f"{what}; wrapped anew: {done.ring_keys} ring key(s), {done.secrets} secret(s)"],
    )


@app.command("renew")
def renew(site: SiteOption, json: Json = False) -> None:
    """Start a new ring key for what is written from now on."""
    from gateway.site.admin import key_rotation

    made = f"{on_site(site, key_rotation.renew):016x}"
    tell({"ring_key": made}, as_json=json, text=lambda: [f"new blocks are sealed with ring key {made} from now on"])


@app.command("list")
def list_(site: SiteOption, json: Json = False) -> None:
    """Ring keys, and how many blocks each seals."""
    from gateway.site.admin import key_rotation

    async def work(opened: Site) -> list[RingKeyFacts]:
        return key_rotation.list_ring_keys(opened)

    found = on_site(site, work)
    tell(
        [each._asdict() for each in found],
        as_json=json,
        text=lambda: table(
            ("RING KEY", "TENANT", "MODE", "MASTER KEY", "MADE", "BLOCKS", ""),
            [
                (
                    each.id,
                    each.tenant,
                    each.mode,
                    each.master,
                    when(each.made_ns),
                    str(each.blocks),
                    "active" if each.active else "",
                )
                for each in found
            ],
        ),
    )
