"""The entry point of the command `entrepot`: it runs a command, and turns errors into messages and exit statuses.

Exit statuses: 0: success. 1: the command was refused or failed. 2: the command line is wrong. 3: `fsck` found errors.
4: `fsck` could not check everything. 130: interrupted.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer
from typer.exceptions import Abort, Exit, TyperException

from gateway.cli import backends, config, keys, maintenance, serve, site, usage, users
from gateway.cli.output import print_error, print_logged_warnings
from gateway.errors import EntrepotError

REFUSED = 1
USAGE = 2
INTERRUPTED = 130

app = typer.Typer(
    name="entrepot",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
site.add_to(app)
serve.add_to(app)
maintenance.add_to(app)
config.add_to(app)
app.command("usage", short_help="Show what buckets and users store.")(usage.usage)
app.command("explain", short_help="Show where an object is stored, and why.")(backends.explain)
app.add_typer(backends.app, name="backend")
app.add_typer(users.app, name="user")
app.add_typer(keys.app, name="keys")


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=site.print_version, help="Print the version, and exit."),
    ] = False,
) -> None:
    """A multi-cloud object-storage gateway."""


def main() -> None:
    """Run the command line, and end the process."""
    os.umask(0o077)  # other users may read nothing that a site writes
    print_logged_warnings()
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run the command that *arguments* name. Returns the exit status. Errors are printed as messages, without a
    traceback."""
    try:
        status = app(args=arguments, prog_name="entrepot", standalone_mode=False)
    except TyperException as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # which typer does not export
            print(error, file=sys.stderr)  # noqa: T201 (the help of a group of commands)
        else:
            print_error(error, as_json="--json" in arguments)
        return USAGE
    except Exit as left:
        return left.exit_code
    except (Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # so that the interpreter's last flush does not fail too
        return REFUSED
    except (EntrepotError, OSError) as error:
        print_error(error, as_json="--json" in arguments)
        return REFUSED
    except Exception as error:
        if os.environ.get("ENTREPOT_DEBUG"):
            raise
        unexpected = RuntimeError(f"unexpected error: {error!r} (set ENTREPOT_DEBUG=1 for a traceback)")
        print_error(unexpected, as_json="--json" in arguments)
        return REFUSED
    return status if isinstance(status, int) else 0


if __name__ == "__main__":
    main()
