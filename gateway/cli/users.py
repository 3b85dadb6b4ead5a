"""`entrepot user …`: the users of a site and their access keys."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.open_site import read_site, run_on_site
from gateway.cli.options import Json, SiteOption
from gateway.cli.output import format_table, format_time, print_result
from gateway.errors import InvalidArgument

if TYPE_CHECKING:
    from gateway.site.admin.users import NewAccessKey

app = typer.Typer(help="Users and their access keys.", no_args_is_help=True)
key_app = typer.Typer(help="A user's access keys.", no_args_is_help=True)
app.add_typer(key_app, name="key")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The user's name.", show_default=False)]
AccessKey = Annotated[
    str | None,
    typer.Option(
        "--access-key",
        metavar="KEY",
        help="The new access key, with --secret-key-file. [default: random]",
        show_default=False,
    ),
]
SecretFile = Annotated[
    Path | None,
    typer.Option(
        "--secret-key-file", metavar="FILE", help="The file that contains the new secret key; - for standard input."
    ),
]


@app.command("add")
def add(
    name: Name, site: SiteOption, access_key: AccessKey = None, secret_key_file: SecretFile = None, json: Json = False
) -> None:
    """Make a user with an access key. The secret key is shown only now."""
    from gateway.site.admin import users

    secret = read_secret(access_key, secret_key_file)
    made = run_on_site(site, lambda opened: users.add_user(opened, name, access_key, secret))
    _print_key(made, shown=secret is None, as_json=json)


@app.command("list")
def list_(site: SiteOption, json: Json = False) -> None:
    """List the users."""
    from gateway.site.admin import users

    found = read_site(site, users.list_users)
    print_result(
        [{**user._asdict(), "access_keys": list(user.access_keys)} for user in found],
        as_json=json,
        text=lambda: format_table(
            ("NAME", "STATE", "BUCKETS", "MADE", "ACCESS KEYS"),
            [
                (
                    each.name,
                    "root" if each.root else "disabled" if each.disabled else "",
                    str(each.buckets),
                    format_time(each.made_ns),
                    " ".join(each.access_keys),
                )
                for each in found
            ],
        ),
    )


@app.command("remove")
def remove(name: Name, site: SiteOption, json: Json = False) -> None:
    """Remove a user that owns no bucket, with all its access keys."""
    from gateway.site.admin import users

    run_on_site(site, lambda opened: users.remove_user(opened, name))
    print_result({"removed": name}, as_json=json, text=lambda: [f"removed user {name}"])


@app.command("disable", short_help="Disable a user and its access keys.")
def disable(name: Name, site: SiteOption, json: Json = False) -> None:
    """Disable a user: requests with its access keys are refused from then on. Its buckets stay."""
    from gateway.site.admin import users

    run_on_site(site, lambda opened: users.set_disabled(opened, name, True))
    print_result({"disabled": name}, as_json=json, text=lambda: [f"disabled user {name}"])


@app.command("enable")
def enable(name: Name, site: SiteOption, json: Json = False) -> None:
    """Enable a user that was disabled."""
    from gateway.site.admin import users

    run_on_site(site, lambda opened: users.set_disabled(opened, name, False))
    print_result({"enabled": name}, as_json=json, text=lambda: [f"enabled user {name}"])


@app.command("transfer", short_help="Give a bucket to another user.")
def transfer(
    bucket: Annotated[str, typer.Argument(metavar="BUCKET", help="The bucket's name.", show_default=False)],
    to: Annotated[str, typer.Argument(metavar="TO", help="The name of the new owner.", show_default=False)],
    site: SiteOption,
    json: Json = False,
) -> None:
    """Give a bucket to another user. Its policy is removed, so the former owner may not use it any more."""
    from gateway.site.admin import users

    former = run_on_site(site, lambda opened: users.transfer_bucket(opened, bucket, to))
    print_result(
        {"bucket": bucket, "former_owner": former, "owner": to},
        as_json=json,
        text=lambda: [f"{bucket} belongs to {to} now; it belonged to {former}"],
    )


@key_app.command("add")
def add_access_key(
    user: Name,
    site: SiteOption,
    access_key: AccessKey = None,
    secret_key_file: SecretFile = None,
    expires: Annotated[
        str | None,
        typer.Option(
            "--expires",
            metavar="TIME",
            help="When the key expires: like 30d, 12h, 90m (minutes) or 2027-01-31. [default: never]",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Make a further access key for a user. The secret key is shown only now."""
    from gateway.site.admin import users
    from gateway.timing import timing_from_environment

    secret = read_secret(access_key, secret_key_file)
    expires_ns = 0 if expires is None else parse_expiry(expires, timing_from_environment().clock.wall_ns())
    made = run_on_site(site, lambda opened: users.add_access_key(opened, user, access_key, secret, expires_ns))
    _print_key(made, shown=secret is None, as_json=json)


@key_app.command("list")
def list_access_keys(
    site: SiteOption,
    user: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Only the keys of this user.", show_default=False)
    ] = None,
    json: Json = False,
) -> None:
    """List access keys, without their secret keys."""
    from gateway.site.admin import users

    found = read_site(site, lambda opened: users.list_access_keys(opened, user))
    print_result(
        [each._asdict() for each in found],
        as_json=json,
        text=lambda: format_table(
            ("ACCESS KEY", "USER", "MADE", "EXPIRES"),
            [
                (
                    each.access_key,
                    each.user,
                    format_time(each.made_ns),
                    format_time(each.expires_ns) if each.expires_ns else "never",
                )
                for each in found
            ],
        ),
    )


@key_app.command("remove")
def remove_access_key(
    access_key: Annotated[str, typer.Argument(metavar="KEY", help="The access key.", show_default=False)],
    site: SiteOption,
    json: Json = False,
) -> None:
    """Remove an access key. Requests that are signed with it are refused from then on."""
    from gateway.site.admin import users

    run_on_site(site, lambda opened: users.remove_access_key(opened, access_key))
    print_result({"removed": access_key}, as_json=json, text=lambda: [f"removed access key {access_key}"])


_SPAN = re.compile(r"([0-9]{1,6})([dhm])")
_SECONDS = {"d": 86_400, "h": 3_600, "m": 60}


def parse_expiry(text: str, now_ns: int) -> int:
    """Return the time that *text* names: a span from *now_ns* on, such as `30d`, or a date or time, by default in UTC.
    Raises `InvalidArgument`, also for a time that has passed."""
    span = _SPAN.fullmatch(text)
    if span is not None:
        at_ns = now_ns + int(span[1]) * _SECONDS[span[2]] * 10**9
    else:
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            raise InvalidArgument(f"--expires {text}: it must be like 30d, 12h, 90m or 2027-01-31") from None
        at_ns = int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()) * 10**9
    if not now_ns < at_ns < 1 << 63:
        raise InvalidArgument(f"--expires {text}: it must be in the future, before the year 2262")
    return at_ns


def read_secret(access_key: str | None, path: Path | None) -> str | None:
    """Return the secret key in the file *path*; None if neither argument is given. Raises `InvalidArgument` if only one
    is."""
    if path is None and access_key is None:
        return None
    if path is None or access_key is None:
        raise InvalidArgument("give both --access-key and --secret-key-file, or neither for random keys")
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text()
    except UnicodeDecodeError:
        raise InvalidArgument(f"{path} contains no secret key: it is not a text file") from None  # without quoting it
    return text.strip()


def _print_key(key: NewAccessKey, *, shown: bool, as_json: bool) -> None:
    """Print a new access key; its secret key only if *shown*."""
    found = {"user": key.user, "access_key": key.access_key}
    if shown:
        found["secret_key"] = key.secret
    lines = [f"{name.replace('_', ' ')}: {value}" for name, value in found.items()]
    print_result(found, as_json=as_json, text=lambda: lines)
