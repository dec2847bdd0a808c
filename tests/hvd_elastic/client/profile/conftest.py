from tests.hvd_elastic.client.operations.conftest import cluster

__all__ = ["cluster"]
