"""The stores in which best models are kept are those of the checkpoints."""

from tests.trainer.checkpoint.conftest import faults, s3_client, s3_proxy, s3_url, url

__all__ = ["faults", "s3_client", "s3_proxy", "s3_url", "url"]
