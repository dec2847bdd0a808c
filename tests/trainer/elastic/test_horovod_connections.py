"""What the survivors of a death read from their connections to each other."""

import pytest

from tests.trainer.elastic.bare_world import bare_world, ends

pytestmark = [pytest.mark.process, pytest.mark.timeout(900)]


@pytest.mark.needs_patch("lost-connection")
def test_a_survivor_takes_no_later_message_for_data() -> None:
    """Stock Horovod goes on with the next operation, over its connections to those who are still in this one.

    In a ring of five, two are not connected to the one that dies: they learn of it from their neighbours.
    """
    with bare_world("reduce", 5, HOROVOD_FUSION_THRESHOLD="0") as processes:
        survivors = [ends(process) for process in processes[:-1]]
    for code, output in survivors:
        assert (code, "left" in output) == (0, True), output
