from collections.abc import Iterator

import pytest

from tests.hvd_elastic.client.sweep.sweeps import SweepCluster


@pytest.fixture
def cluster() -> Iterator[SweepCluster]:
    served = SweepCluster()
    yield served
    served.stop()
