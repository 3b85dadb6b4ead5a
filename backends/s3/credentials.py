"""The keys that requests are signed with: the chain of aiobotocore (given keys, environment, profile, web identity,
container, instance), handed out for a little while at a time, so that a key is replaced before it expires.

botocore refreshes what expires within 15 minutes, and lets nobody have what expires within 10 without trying. Whoever
gets keys here keeps them until `Keys.until`, a moment at which to ask again.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from backends import errors
from backends.s3.settings import S3Settings


class Keys(NamedTuple):
    """What requests are signed with."""

    access_key: str
    secret_key: str
    token: str | None
    until: datetime | None
    """When the provider shall be asked again, which is before the keys expire. None for keys that do not."""


class Credentials:
    """An asynchronous provider of keys over a chain that was resolved."""

    def __init__(self, chain: Any, pauses: Sequence[float]) -> None:
        """*pauses*: as `DriverTiming.credential_seconds`, longest first."""
        self._chain = chain
        self._pauses = pauses

    async def __call__(self) -> Keys:
        """The keys for now. Raises what the chain raises."""
        frozen = await self._chain.get_frozen_credentials()
        return Keys(frozen.access_key, frozen.secret_key, frozen.token, self._ask_again_at())

    def _ask_again_at(self) -> datetime | None:
        """None for keys that do not expire."""
        expires_within = getattr(self._chain, "refresh_needed", None)
        if expires_within is None:
            return None
        wait_s = next((wait_s for wait_s in self._pauses if not expires_within(2 * wait_s)), 0.0)
        return datetime.now(UTC) + timedelta(seconds=wait_s)


async def resolve(session: Any, settings: S3Settings) -> Credentials:
    """The keys that *settings* name, or the first that the chain finds. Raises `Misconfigured` where there are none,
    and `Unavailable` where whoever gives them out does not answer."""
    from botocore import exceptions

    if settings.access_key is not None:
        session.set_credentials(settings.access_key, settings.secret_key, settings.session_token)
    try:
        chain = await session.get_credentials()
        if chain is not None:
            await chain.get_frozen_credentials()
            return Credentials(chain, settings.timing.credential_seconds)
    except (exceptions.CredentialRetrievalError, exceptions.HTTPClientError, OSError, TimeoutError) as error:
        raise errors.Unavailable(f"credentials are not to be had: {error}", backend=settings.name) from error
    except exceptions.ClientError as error:
        raise errors.Denied(f"credentials are refused: {error}", backend=settings.name) from error
    except exceptions.BotoCoreError as error:
        raise errors.Misconfigured(f"credentials: {error}", backend=settings.name) from error
    raise errors.Misconfigured(
        "no credentials: there is no access_key, and neither the environment (AWS_ACCESS_KEY_ID, …), a profile in "
        "~/.aws, a web identity, a container's role nor an instance's has any",
        backend=settings.name,
    )
