"""Credentials for signing: aiobotocore's chain of providers (given keys, environment, profile, web identity, container,
instance), handed out with a time at which to ask again, so that they are replaced before they expire.

botocore refreshes credentials that expire within 15 minutes, and within 10 minutes of the expiry hands out none without
a successful refresh. The caller uses the keys that it gets here until `Keys.until`, and then asks again.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from backends import errors
from backends.s3.settings import S3Settings


class Keys(NamedTuple):
    """The credentials that requests are signed with."""

    access_key: str
    secret_key: str
    token: str | None
    until: datetime | None
    """When to ask the provider again, which is before the keys expire. None for keys that do not expire."""


class Credentials:
    """An asynchronous provider of keys, over a resolved chain of aiobotocore."""

    def __init__(self, chain: Any, pauses: Sequence[float]) -> None:
        """*pauses*: as `DriverTiming.credential_seconds`, longest first."""
        self._chain = chain
        self._pauses = pauses

    async def __call__(self) -> Keys:
        """Return the current keys. Raises what the chain raises."""
        frozen = await self._chain.get_frozen_credentials()
        return Keys(frozen.access_key, frozen.secret_key, frozen.token, self._ask_again_at())

    def _ask_again_at(self) -> datetime | None:
        """Return the time for `Keys.until`; None for keys that do not expire."""
        expires_within = getattr(self._chain, "refresh_needed", None)
        if expires_within is None:
            return None
        wait_s = next((wait_s for wait_s in self._pauses if not expires_within(2 * wait_s)), 0.0)
        return datetime.now(UTC) + timedelta(seconds=wait_s)


async def resolve(session: Any, settings: S3Settings) -> Credentials:
    """Return the credentials that *settings* contain, or the first that the chain finds. Raises `Misconfigured` where
    there are none, `Unavailable` where a provider does not answer, and `Denied` where it refuses."""
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
