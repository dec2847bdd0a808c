"""What the survivors of a death read from their connections to each other."""

import pytest

from tests.trainer.elastic.bare_world import bare_world, ends

pytestmark = [pytest.mark.horovod, pytest.mark.timeout(400)]


@pytest.mark.needs_patch("lost-connection")
def test_a_survivor_takes_no_negotiation_for_data() -> None:
    """Stock Horovod negotiates with those who are still in the operation that a death broke: they abort."""
    for seconds in (0.01, 0.05, 0.1):
        with bare_world("reduce", 3, TEST_SECONDS=str(seconds)) as processes:
            for process in processes[:2]:
                code, output = ends(process)
                assert (code, "left" in output) == (0, True), output
