from collections.abc import Iterator

import pytest

from tests.hvd_elastic.client.operations.jobs_cluster import JobsCluster


@pytest.fixture
def cluster() -> Iterator[JobsCluster]:
    served = JobsCluster()
    yield served
    served.stop()
