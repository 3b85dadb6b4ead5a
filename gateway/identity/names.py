"""What users, access keys and secrets may be called, and how new ones are drawn. Pure but for the drawing."""

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
    """*name* itself; else `InvalidArgument`. The characters are those of an IAM user's name."""
    if _USER.fullmatch(name) is None:
        raise InvalidArgument(
            f"{name[:80]!r} cannot be a user's name: 1 to 64 of letters, digits and +=,.@_-, a letter or digit first"
        )
    return name


def check_access_key(access_key: str) -> str:
    """*access_key* itself; else `InvalidArgument`. It stands in a credential's scope, so it holds no slash."""
    if _ACCESS_KEY.fullmatch(access_key) is None:
        raise InvalidArgument(
            f"{access_key[:140]!r} cannot be an access key: 3 to 128 letters, digits and _.-, no sign first"
        )
    return access_key


def check_secret(secret: str) -> str:
    """*secret* itself; else `InvalidArgument`, which does not repeat it."""
    if _SECRET.fullmatch(secret) is None:
        raise InvalidArgument("a secret key is 8 to 128 visible ASCII characters")
    return secret


def new_access_key() -> str:
    """20 upper-case letters and digits, like AWS's."""
    return "EK" + "".join(secrets.choice(_UPPER) for _ in range(18))


def new_secret() -> str:
    """40 characters like AWS's, 240 bits."""
    return "".join(secrets.choice(_SECRET_CHARS) for _ in range(40))
