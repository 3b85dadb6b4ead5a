"""The S3 driver keeps the contract, on every S3 that is to be had: bare, below a prefix, in wrappers, told to confirm
each way."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from backends.base import Backend
from backends.retry import Retrying
from backends.testing.faulty import FaultPlan, Faulty
from backends.wrappers import ConcurrencyLimited, Metered, TimeLimited
from tests.backends.conftest import OpenS3
from tests.backends.contract import Contract
from tests.servers.minio import WHY_NOT, is_there
from tests.servers.running import S3Server

pytestmark = pytest.mark.slow


class TestS3(Contract):
    @pytest.fixture
    async def backend(self, server: S3Server, open_s3: OpenS3, bucket: str, prefix: str) -> AsyncIterator[Backend]:
        yield await open_s3(server, bucket=bucket, prefix=prefix)


class TestS3AsAWholeBucketInEveryWrapper(Contract):
    @pytest.fixture
    async def backend(self, entrepot_server: S3Server, open_s3: OpenS3) -> AsyncIterator[Backend]:
        inner = ConcurrencyLimited(Faulty(await open_s3(entrepot_server), FaultPlan()), 8)
        yield Metered(TimeLimited(Retrying(inner), 60), lambda *_: None)


class TestS3ThatIsReadBack(Contract):
    @pytest.fixture
    async def backend(
        self, radosgw_server: S3Server, open_s3: OpenS3, bucket: str, prefix: str
    ) -> AsyncIterator[Backend]:
        yield await open_s3(radosgw_server, bucket=bucket, prefix=prefix, confirm="read")


@pytest.mark.skipif(not is_there(), reason=WHY_NOT)
async def test_a_minio_that_is_there_is_among_the_servers(minio_server: S3Server, open_s3: OpenS3) -> None:
    """So that a run without it says so, once."""
    assert await (await open_s3(minio_server)).marker() is None
