from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rig import Broker


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker in memory that nobody harms; tests use keys of their own."""
    folder = tmp_path_factory.mktemp("broker")
    broker = Broker(folder, durable=False)
    broker.unix = str(folder / "socket")
    with broker:
        yield broker


@pytest.fixture
def durable(tmp_path: Path) -> Iterator[Broker]:
    """A broker with a directory, to be killed and started again."""
    with Broker(tmp_path, durable=True) as broker:
        yield broker


@pytest.fixture
def forgetful(tmp_path: Path) -> Iterator[Broker]:
    """A broker in memory, to be killed and started again."""
    with Broker(tmp_path, durable=False) as broker:
        yield broker


@pytest.fixture
def key(request: pytest.FixtureRequest) -> str:
    """A key of the test's own."""
    return f"{request.node.name}/key"
