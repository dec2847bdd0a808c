from tests.hvd_elastic.jobs.operations.conftest import cluster

__all__ = ["cluster"]
