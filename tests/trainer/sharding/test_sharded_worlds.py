"""A sharded optimizer in real worlds of one, two, three and four ranks."""

from pathlib import Path

import pytest

from tests.trainer.elastic.bare_world import run_cases

CASES = Path(__file__).with_name("sharded_cases.py")
pytestmark = [pytest.mark.process, pytest.mark.timeout(900)]


def in_world(size: int, *arguments: str) -> None:
    run_cases([str(CASES), str(size), *arguments], size)


@pytest.mark.parametrize("size", [1, pytest.param(2, marks=pytest.mark.core), 3, 4])
def test_a_sharded_optimizer_is_the_plain_one(size: int) -> None:
    in_world(size)


@pytest.mark.parametrize(("writers", "readers"), [(3, 2), (1, 2), (2, 1)])
def test_a_checkpoint_of_any_size_restores_at_any_other(tmp_path: Path, writers: int, readers: int) -> None:
    in_world(writers, str(tmp_path))
    in_world(readers, str(tmp_path), str(writers))
