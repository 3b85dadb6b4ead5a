"""All test suites that fsspec has for implementations."""

from __future__ import annotations

import pytest
from fsspec.tests.abstract import (
    AbstractCopyTests,
    AbstractFixtures,
    AbstractGetTests,
    AbstractOpenTests,
    AbstractPipeTests,
    AbstractPutTests,
)

pytestmark = pytest.mark.slow


class Fixtures(AbstractFixtures):
    @pytest.fixture
    def fs(self, shared):
        return shared

    @pytest.fixture
    def fs_path(self, bucket):
        return bucket

    @pytest.fixture
    def fs_join(self):
        return lambda *names: "/".join(names)


class TestCopy(Fixtures, AbstractCopyTests):
    pass


class TestGet(Fixtures, AbstractGetTests):
    pass


class TestPut(Fixtures, AbstractPutTests):
    pass


class TestOpen(Fixtures, AbstractOpenTests):
    pass


class TestPipe(Fixtures, AbstractPipeTests):
    pass
