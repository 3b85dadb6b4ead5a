"""The command's entry: its commands, and the one place where errors become sentences and exit statuses.

0: done. 1: refused or failed. 2: the command line is wrong. 3: `fsck` found something wrong. 4: `fsck` could not look
everywhere. 130: interrupted.
"""

from __future__ import annotations

import os
import sys

import typer
from typer.exceptions import Abort, Exit, TyperException

from gateway.cli import backends, config, keys, maintenance, serve, site, users
from gateway.cli.output import print_error, print_logged_warnings
from gateway.errors import EntrepotError

REFUSED = 1
USAGE = 2
INTERRUPTED = 130

app = typer.Typer(
    name="entrepot",
    help="A multi-cloud object-storage gateway.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
site.add_to(app)
serve.add_to(app)
maintenance.add_to(app)
config.add_to(app)
app.command("explain")(backends.explain)
app.add_typer(backends.app, name="backend")
app.add_typer(users.app, name="user")
app.add_typer(keys.app, name="keys")


def main() -> None:
    """Run the command line; ends the process."""
    os.umask(0o077)  # nothing that a site writes is for others
    print_logged_warnings()
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run the command that *arguments* name. Answers the exit status; never a traceback."""
    try:
        status = app(args=arguments, prog_name="entrepot", standalone_mode=False)
    except TyperException as error:
        print_error(error, as_json="--json" in arguments)
        return USAGE
    except Exit as left:
        return left.exit_code
    except (Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # so that the interpreter's own flush does not fail again
        return REFUSED
    except (EntrepotError, OSError) as error:
        print_error(error, as_json="--json" in arguments)
        return REFUSED
    except Exception as error:
        if os.environ.get("ENTREPOT_DEBUG"):
            raise
        unexpected = RuntimeError(f"this should not happen: {error!r} (ENTREPOT_DEBUG=1 shows where)")
        print_error(unexpected, as_json="--json" in arguments)
        return REFUSED
    return status if isinstance(status, int) else 0


if __name__ == "__main__":
    main()
