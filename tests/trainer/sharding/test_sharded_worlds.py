"""A sharded optimizer in real worlds of one, two, three and four ranks."""

from pathlib import Path

import pytest

from tests.trainer.elastic.bare_world import ends, world

CASES = Path(__file__).with_name("sharded_cases.py")
pytestmark = [pytest.mark.process, pytest.mark.timeout(900)]


def run_cases(size: int, *arguments: str) -> None:
    """Run the cases in a world; every rank must come to the end of all of them."""
    with world([str(CASES), str(size), *arguments], size) as processes:
        for code, said in map(ends, processes):
            assert code == 0, said
            assert said.endswith("all done\n"), said


@pytest.mark.parametrize("size", [1, pytest.param(2, marks=pytest.mark.core), 3, 4])
def test_a_sharded_optimizer_is_the_plain_one(size: int) -> None:
    run_cases(size)


@pytest.mark.parametrize(("writers", "readers"), [(3, 2), (1, 2), (2, 1)])
def test_a_checkpoint_of_any_size_restores_at_any_other(tmp_path: Path, writers: int, readers: int) -> None:
    run_cases(writers, str(tmp_path))
    run_cases(readers, str(tmp_path), str(writers))
