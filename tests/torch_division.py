"""Whether this torch's `fully_shard` is one that can be called again in another world."""

import pytest

from hvd_elastic.trainer.collectives import module_division

needs_division = pytest.mark.skipif(
    module_division.missing_name() is not None,
    reason="fully_shard of this torch is an earlier one, which the product refuses",
)
