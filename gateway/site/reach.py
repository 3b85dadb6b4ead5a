"""How a backend is reached: what the config says of that, and the files that it names. With another key, address or
limit it is opened anew; that it is the same place then, its marker shows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from gateway.site.files import stamp
from gateway.topology import BackendPlace

Stamp = tuple[int, int, int]


class Reach(NamedTuple):
    """Equal for two openings that would come to the same."""

    place: BackendPlace
    """But for what does not matter to who opens it."""
    files: tuple[Stamp, ...]
    """Of the files that it names: what stands in them may be replaced while the config stays as it is."""


def reach_of(place: BackendPlace) -> Reach:
    """How *place* is reached now. Looks at its files, without reading them."""
    named = (place.s3.secret_key_file, place.s3.ca_file) if place.s3 is not None else ()
    return Reach(replace(place, cluster="", drain=False), tuple(stamp(Path(each)) for each in named if each))
