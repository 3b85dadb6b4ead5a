"""`entrepot user …`: who may use the site, and with which access keys."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from gateway.cli.options import Json, SiteOption
from gateway.cli.output import table, tell, when
from gateway.errors import InvalidArgument

if TYPE_CHECKING:
    from gateway.site.admin.users import NewKey
    from gateway.site.site import Site

T = TypeVar("T")

app = typer.Typer(help="Users and their access keys.", no_args_is_help=True)
key_app = typer.Typer(help="A user's access keys.", no_args_is_help=True)
app.add_typer(key_app, name="key")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The user's name.", show_default=False)]
AccessKey = Annotated[
    str | None, typer.Option("--access-key", metavar="KEY", help="Drawn at random unless given.", show_default=False)
]
SecretFile = Annotated[
    Path | None,
    typer.Option("--secret-key-file", metavar="FILE", help="Holds the secret key; - is standard input."),
]


@app.command("add")
def add(
    name: Name, site: SiteOption, access_key: AccessKey = None, secret_key_file: SecretFile = None, json: Json = False
) -> None:
    """Make a user, with an access key. The secret key is shown this once."""
    from gateway.site.admin import users

    secret = read_secret(access_key, secret_key_file)
    made = on_site(site, lambda opened: users.add_user(opened, name, access_key, secret))
    _tell_key(made, shown=secret is None, as_json=json)


@app.command("list")
def list_(site: SiteOption, json: Json = False) -> None:
    """All users."""
    from gateway.site.admin import users

    found = on_site(site, _now(users.list_users))
    tell(
        [{**user._asdict(), "access_keys": list(user.access_keys)} for user in found],
        as_json=json,
        text=lambda: table(
            ("NAME", "ROOT", "BUCKETS", "MADE", "ACCESS KEYS"),
            [
                (
                    each.name,
                    "yes" if each.root else "",
                    str(each.buckets),
                    when(each.made_ns),
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

    on_site(site, lambda opened: users.remove_user(opened, name))
    tell({"removed": name}, as_json=json, text=lambda: [f"removed user {name}"])


@key_app.command("add")
def add_key(
    user: Name, site: SiteOption, access_key: AccessKey = None, secret_key_file: SecretFile = None, json: Json = False
) -> None:
    """Give a user one more access key. The secret key is shown this once."""
    from gateway.site.admin import users

    secret = read_secret(access_key, secret_key_file)
    made = on_site(site, lambda opened: users.add_key(opened, user, access_key, secret))
    _tell_key(made, shown=secret is None, as_json=json)


@key_app.command("list")
def list_keys(
    site: SiteOption,
    user: Annotated[str | None, typer.Argument(metavar="NAME", help="Of this user alone.", show_default=False)] = None,
    json: Json = False,
) -> None:
    """Access keys, without their secrets."""
    from gateway.site.admin import users

    found = on_site(site, _now(lambda opened: users.list_keys(opened, user)))
    tell(
        [each._asdict() for each in found],
        as_json=json,
        text=lambda: table(
            ("ACCESS KEY", "USER", "MADE"), [(each.access_key, each.user, when(each.made_ns)) for each in found]
        ),
    )


@key_app.command("remove")
def remove_key(
    access_key: Annotated[str, typer.Argument(metavar="KEY", help="The access key.", show_default=False)],
    site: SiteOption,
    json: Json = False,
) -> None:
    """Remove an access key; requests that it signs are refused from then on."""
    from gateway.site.admin import users

    on_site(site, lambda opened: users.remove_key(opened, access_key))
    tell({"removed": access_key}, as_json=json, text=lambda: [f"removed access key {access_key}"])


def read_secret(access_key: str | None, path: Path | None) -> str | None:
    """The secret key in a file; None where neither is given. Raises `InvalidArgument` for one without the other."""
    if path is None and access_key is None:
        return None
    if path is None or access_key is None:
        raise InvalidArgument("--access-key and --secret-key-file go together: give both, or neither to draw them")
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text()
    except UnicodeDecodeError:
        raise InvalidArgument(f"{path} holds no secret key: it is no text") from None  # nor is any of it repeated
    return text.strip()


def on_site(
    folder: Path, work: Callable[[Site], Awaitable[T]], *, with_storage: bool = False, strict: bool = True
) -> T:
    """Open the site, do *work* on it, close it. Not *strict*: also where backends cannot be opened."""

    async def opened() -> T:
        from gateway.site.site import Site

        async with await Site.open(folder, kind="cli", with_storage=with_storage, strict=strict) as site:
            return await work(site)

    return asyncio.run(opened())


def _now(look: Callable[[Site], T]) -> Callable[[Site], Awaitable[T]]:
    """A look at the site that needs no wait, as work for `on_site`."""

    async def work(site: Site) -> T:
        return look(site)

    return work


def _tell_key(key: NewKey, *, shown: bool, as_json: bool) -> None:
    """A new key; its secret only if it was drawn here."""
    found = {"user": key.user, "access_key": key.access_key}
    if shown:
        found["secret_key"] = key.secret
    lines = [f"{name.replace('_', ' ')}: {value}" for name, value in found.items()]
    tell(found, as_json=as_json, text=lambda: lines)
