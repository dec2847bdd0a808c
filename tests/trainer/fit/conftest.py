"""The stores in which best models are kept are those of the checkpoints."""

from tests.hvd_elastic.stores.store_servers import (
    azure_faults,
    azure_proxy,
    azure_url,
    faults,
    gcs_faults,
    gcs_proxy,
    gcs_url,
    s3_client,
    s3_proxy,
    s3_url,
    url,
)

__all__ = [
    "azure_faults",
    "azure_proxy",
    "azure_url",
    "faults",
    "gcs_faults",
    "gcs_proxy",
    "gcs_url",
    "s3_client",
    "s3_proxy",
    "s3_url",
    "url",
]
