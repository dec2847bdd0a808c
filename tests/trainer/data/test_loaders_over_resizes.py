"""Samplers, loaders and libraries' streams in real worlds: new processes, lost ones, and other sizes."""

from collections import Counter, defaultdict
from pathlib import Path

import pytest

from hvd_elastic.mpijob.contract import Exit
from testbed.local.training import ENGINES, training

SCRIPT = Path(__file__).with_name("train_loaders.py")
LENGTH = 40


@pytest.mark.process
@pytest.mark.timeout(600)
@pytest.mark.parametrize("engine", ENGINES)
def test_each_pass_takes_each_sample_once_over_resizes_and_a_loss(tmp_path: Path, engine: str) -> None:
    with training(tmp_path, engine=engine) as job:
        job.offer("a", "b")
        job.launch("-np", "2", "--min-np", "1", "--max-np", "2", script=SCRIPT)
        job.trains(2, steps=6)
        job.offer("a")
        job.trains(1, steps=10)
        job.offer("a", "b")
        job.trains(2, steps=10)
        job.kill("b")
        job.trains(1, steps=6)
        (job.folder / "hurry").touch()
        assert job.ends() == 0, job.said()
        (end,) = job.written("end")
    taken = defaultdict(list)
    for epoch, name, number in end:
        taken[name, epoch].append(number)
    drawn = [taken.pop(("weighted", epoch)) for epoch in range(3)]
    assert {each: sorted(numbers) for each, numbers in taken.items()} == {
        (name, epoch): list(range(LENGTH)) for name in ("buckets", "rows", "web", "loader") for epoch in range(3)
    }
    assert [len(numbers) for numbers in drawn] == [LENGTH] * 3
    assert min(Counter(numbers)[1] for numbers in drawn) > 5, "the heavy one"


@pytest.mark.core
@pytest.mark.process
@pytest.mark.timeout(300)
@pytest.mark.parametrize("engine", ENGINES)
def test_orders_that_differ_end_the_job_before_the_first_step(tmp_path: Path, engine: str) -> None:
    with training(tmp_path, engine=engine, TEST_UNRULY="1") as job:
        job.offer("a", "b")
        job.launch("-np", "2", "--min-np", "2", script=SCRIPT)
        assert job.ends() == Exit.SCRIPT_MISTAKE, job.said()
        assert "the Unruly gives another order on worker 1 than on worker 0: every worker draws the whole" in job.said()
        assert not job.events("step")
