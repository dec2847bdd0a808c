from tests.hvd_elastic.client.conftest import cluster, served

__all__ = ["cluster", "served"]
