"""The parameters with which a backend is opened: its entry in the config, and the state of the files that it names.

A backend whose key, address or limits have changed is opened again. Its marker then proves that it is the same place.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from gateway.site.storage.atomic_files import file_stamp
from gateway.topology import BackendPlace

FileStamp = tuple[int, int, int]

_SHARED = {"AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials", "AWS_CONFIG_FILE": "~/.aws/config"}
"""Where AWS's tools read profiles: environment variables with a path, and the paths without these variables."""


class ConnectionParams(NamedTuple):
    """Two openings with equal parameters have the same result."""

    place: BackendPlace
    """The entry in the config, as `without_placement` returns it."""
    files: tuple[FileStamp, ...]
    """The stamps of the files that it names, since their content may change while the config does not."""


def without_placement(place: BackendPlace) -> BackendPlace:
    """Return *place* without the fields that do not matter for opening it."""
    return replace(place, cluster="", drain=False)


def connection_params(place: BackendPlace) -> ConnectionParams:
    """Return the parameters with which *place* would be opened now. Reads the attributes of its files, not their
    content."""
    return ConnectionParams(without_placement(place), tuple(file_stamp(Path(each)) for each in credential_files(place)))


def credential_files(place: BackendPlace) -> list[str]:
    """Return the paths of the files that decide how *place* is opened, whether they exist or not."""
    if place.s3 is None:
        return []
    paths = [place.s3.secret_key_file, place.s3.ca_file]
    if not place.s3.access_key and not place.s3.access_key_env:  # then the keys may be in a profile
        paths += [os.path.expanduser(os.environ.get(name, usual)) for name, usual in _SHARED.items()]
    return [path for path in paths if path]
