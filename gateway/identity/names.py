"""The syntax of user names, access keys and secrets, and the generation of new keys and secrets."""

from __future__ import annotations

import re
import secrets
import string

from gateway.errors import InvalidArgument

_USER = re.compile(r"[A-Za-z0-9][A-Za-z0-9+=,.@_-]{0,63}")
_ACCESS_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{2,127}")
_SECRET = re.compile(r"[\x21-\x7e]{8,128}")
_UPPER = string.ascii_uppercase + "234567"
_SECRET_CHARS = string.ascii_letters + string.digits + "+/"


def check_user(name: str) -> str:
    """Return *name*. Raises `InvalidArgument` unless it has the characters of an IAM user name."""
    if _USER.fullmatch(name) is None:
        raise InvalidArgument(
            f"{name[:80]!r} is not a valid user name: 1 to 64 letters, digits and +=,.@_-, the first no sign"
        )
    return name


def check_access_key(access_key: str) -> str:
    """Return *access_key*. Raises `InvalidArgument`. It is part of a credential's scope, so it contains no slash."""
    if _ACCESS_KEY.fullmatch(access_key) is None:
        raise InvalidArgument(
            f"{access_key[:140]!r} is not a valid access key: 3 to 128 letters, digits and _.-, the first one no sign"
        )
    return access_key


def check_secret(secret: str) -> str:
    """Return *secret*. Raises `InvalidArgument`, which does not repeat it."""
    if _SECRET.fullmatch(secret) is None:
        raise InvalidArgument("a secret key must have 8 to 128 visible ASCII characters")
    return secret


def new_access_key() -> str:
    """Return 20 random upper-case letters and digits, like AWS's."""
    return "EK" + "".join(secrets.choice(_UPPER) for _ in range(18))


def new_secret() -> str:
    """Return 40 random characters like AWS's (240 bits)."""
    return "".join(secrets.choice(_SECRET_CHARS) for _ in range(40))
