import pytest
import torch

from hvd_elastic.trainer.collectives.any_rank import any_rank
from testbed.thread_world import ThreadTrainingWorld, in_each_rank


@pytest.mark.parametrize("answers", [[False], [True], [False, False, False], [False, True, False], [True, True]])
def test_all_ranks_get_the_same_answer(answers: list[bool]) -> None:
    def work(world: ThreadTrainingWorld) -> bool:
        return any_rank(answers[world.rank()], world=world)

    assert in_each_rank(len(answers), work) == [any(answers)] * len(answers)


def test_a_tensor_is_an_answer() -> None:
    losses = [torch.tensor(1.0), torch.tensor(float("nan"))]
    assert in_each_rank(2, lambda world: any_rank(~torch.isfinite(losses[world.rank()]), world=world)) == [True, True]
