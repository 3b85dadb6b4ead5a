"""How a backend is reached: what the config says of that, and the files that it names. With another key, address or
limit it is opened anew; that it is the same place then, its marker shows."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from gateway.site.storage.atomic_files import file_stamp
from gateway.topology import BackendPlace

FileStamp = tuple[int, int, int]

_SHARED = {"AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials", "AWS_CONFIG_FILE": "~/.aws/config"}
"""Where AWS's tools look for profiles: the variables that say so, and where it is without them."""


class ConnectionParams(NamedTuple):
    """Equal for two openings that would come to the same."""

    place: BackendPlace
    """As `without_placement` tells it."""
    files: tuple[FileStamp, ...]
    """Of the files that it names: what stands in them may be replaced while the config stays as it is."""


def without_placement(place: BackendPlace) -> BackendPlace:
    """But for what does not matter to who opens it."""
    return replace(place, cluster="", drain=False)


def connection_params(place: BackendPlace) -> ConnectionParams:
    """How *place* is reached now. Looks at its files, without reading them."""
    return ConnectionParams(without_placement(place), tuple(file_stamp(Path(each)) for each in credential_files(place)))


def credential_files(place: BackendPlace) -> list[str]:
    """The files that say how *place* is reached, whether they are there or not."""
    if place.s3 is None:
        return []
    found = [place.s3.secret_key_file, place.s3.ca_file]
    if not place.s3.access_key and not place.s3.access_key_env:  # then a profile may have the keys
        found += [os.path.expanduser(os.environ.get(name, usual)) for name, usual in _SHARED.items()]
    return [each for each in found if each]
