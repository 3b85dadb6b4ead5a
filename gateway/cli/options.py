"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

SiteArgument = Annotated[
    Path, typer.Argument(metavar="DIR", envvar="ENTREPOT_SITE", help="The site's folder.", show_default=False)
]
SiteOption = Annotated[
    Path, typer.Option("--site", metavar="DIR", envvar="ENTREPOT_SITE", help="The site's folder.", show_default=False)
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
