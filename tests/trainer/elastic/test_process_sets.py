"""What Horovod says of a process set whose world has lost a member: that it is shut down, and nothing else."""

import pytest

from tests.trainer.elastic.bare_world import bare_world, ends

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]

STATE = ("size", "rank", "add", "remove")
OPERATIONS = ("allreduce", "grouped_allreduce", "allgather", "broadcast", "alltoall", "reducescatter", "barrier")


@pytest.fixture(scope="module")
def said() -> dict[str, dict[str, str]]:
    """What each survivor's calls have raised, by its rank."""
    with bare_world("sets", 3, HOROVOD_DYNAMIC_PROCESS_SETS="1") as processes:
        survivors = [ends(process) for process in processes[:2]]
    assert [code for code, _ in survivors] == [0, 0], survivors
    lines = [[line.partition(": ")[::2] for line in output.splitlines() if ": " in line] for _, output in survivors]
    return {str(rank): dict(pairs) for rank, pairs in enumerate(lines)}


@pytest.mark.core
@pytest.mark.needs_patch("process-set-state")
def test_a_set_of_a_lost_world_says_so(said: dict[str, dict[str, str]]) -> None:
    for answers in said.values():
        assert {name: answers[name] for name in STATE} == dict.fromkeys(STATE, "HorovodInternalError")
        assert answers["sets"] == "[0]", "nothing of it is in the next world"


@pytest.mark.core
@pytest.mark.needs_patch("process-set-operations")
def test_an_operation_over_a_set_of_a_lost_world_fails_with_it(said: dict[str, dict[str, str]]) -> None:
    for answers in said.values():
        assert {name: answers[name] for name in OPERATIONS} == dict.fromkeys(OPERATIONS, "HorovodInternalError")
