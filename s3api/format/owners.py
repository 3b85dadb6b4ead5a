"""Owners of buckets and objects as S3 presents them: a canonical user id and a display name.

S3's canonical user id has 64 hexadecimal digits. Here they are the number of the user.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.engine.types import Caller
from s3api.format.xml_writer import escape

if TYPE_CHECKING:
    from gateway.engine.engine import Engine


def owner_id(user: int) -> str:
    """Return the canonical user id."""
    return f"{user:064x}"


class Owners(dict[int, str]):
    """The content of the Owner element by user, created on first use. One instance serves one page. An anonymous
    *caller* sees no names of users."""

    def __init__(self, engine: Engine, caller: Caller) -> None:
        super().__init__()
        self._engine = engine
        self._shows_names = caller.user_id != 0

    def __missing__(self, user: int) -> str:
        name = self._engine.user_name(user) if self._shows_names else None
        display_name = f"<DisplayName>{escape(name)}</DisplayName>" if name else ""
        content = self[user] = f"<ID>{owner_id(user)}</ID>{display_name}"
        return content

    def xml(self, user: int, tag: str = "Owner") -> str:
        """Return the element for *user*."""
        return f"<{tag}>{self[user]}</{tag}>"
