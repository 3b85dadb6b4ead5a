"""Who owns what, as S3 tells it: a canonical id, a name to show, and the owner that a request insists on.

S3's canonical user id is 64 hexadecimal digits; here they are the user's id. There are no account numbers, so what
x-amz-expected-bucket-owner takes is the canonical id too: whatever else it says is not the owner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.errors import AccessDenied
from s3api.format.xml_writer import escape

if TYPE_CHECKING:
    from gateway.engine.engine import Engine
    from s3api.request import S3Request

EXPECTED = "x-amz-expected-bucket-owner"
EXPECTED_OF_SOURCE = "x-amz-source-expected-bucket-owner"


def owner_id(user: int) -> str:
    """S3's canonical user id."""
    return f"{user:064x}"


class Owners(dict[int, str]):
    """What stands inside an owner's element, by user id; made when it is first asked for, once a page."""

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self._engine = engine

    def __missing__(self, user: int) -> str:
        name = self._engine.user_name(user)
        shown = f"<DisplayName>{escape(name)}</DisplayName>" if name else ""
        made = self[user] = f"<ID>{owner_id(user)}</ID>{shown}"
        return made

    def xml(self, user: int, tag: str = "Owner") -> str:
        """An owner's element."""
        return f"<{tag}>{self[user]}</{tag}>"


async def check_expected_owner(request: S3Request, header: str, bucket: str) -> None:
    """What *header* expects of *bucket* must be so. Raises `AccessDenied`, or `NoSuchBucket`."""
    expected = request.headers.get(header)
    if expected is not None:
        found = await request.engine.head_bucket(request.caller, bucket)
        if owner_id(found.owner) != expected.strip():
            raise AccessDenied(f"{bucket} does not belong to {expected}")
