"""A pool on the test's own database."""

from collections.abc import AsyncIterator

import pytest

from schema.database import Database
from tests.support.jobs import opened


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    async with opened(database_url) as pool:
        yield pool
