"""`entrepot usage`: what buckets and users store."""

from __future__ import annotations

from typing import Annotated

import typer

from gateway.cli.open_site import read_site
from gateway.cli.options import Json, SiteArgument
from gateway.cli.output import format_bytes, format_table, print_result

RawBytes = Annotated[bool, typer.Option("--bytes", help="Print sizes as numbers of bytes.")]


def usage(
    folder: SiteArgument,
    bucket: Annotated[str | None, typer.Option("--bucket", metavar="NAME", help="Only this bucket.")] = None,
    user: Annotated[str | None, typer.Option("--user", metavar="NAME", help="Only the buckets of this user.")] = None,
    users: Annotated[bool, typer.Option("--users", help="Show totals per user instead of buckets.")] = False,
    raw: RawBytes = False,
    json: Json = False,
) -> None:
    """Show what each bucket stores, the largest first. Reads counters; no object is counted.

    SIZE counts all versions at the size that clients uploaded, without further copies and without unfinished
    uploads."""
    from gateway.site.admin.usage import bucket_usage, user_usage

    if bucket is not None and (users or user is not None):
        raise typer.BadParameter("give --bucket alone, or --user and --users")

    def size(count: int) -> str:
        return str(count) if raw else format_bytes(count)

    if users:
        by_user = read_site(folder, lambda site: user_usage(site.store, user))
        print_result(
            [each._asdict() for each in by_user],
            as_json=json,
            text=lambda: format_table(
                ("USER", "BUCKETS", "OBJECTS", "VERSIONS", "SIZE", "UPLOADS"),
                [
                    (
                        each.user,
                        *map(str, each[1:4]),
                        size(each.bytes),
                        f"{each.uploads}",
                    )
                    for each in by_user
                ],
            ),
        )
        return
    by_bucket = read_site(folder, lambda site: bucket_usage(site.store, bucket, user))
    print_result(
        [each._asdict() for each in by_bucket],
        as_json=json,
        text=lambda: format_table(
            ("BUCKET", "OWNER", "OBJECTS", "VERSIONS", "SIZE", "UPLOADS"),
            [
                (each.bucket, each.owner, f"{each.objects}", f"{each.versions}", size(each.bytes), f"{each.uploads}")
                for each in by_bucket
            ],
        ),
    )
