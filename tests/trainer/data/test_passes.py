"""Passes over data in a world of several workers, which all must decide alike what is left of an epoch."""

import re
from collections import Counter
from pathlib import Path

import pytest

from testbed.local.training import ENGINES, HOSTS, training

SCRIPT = Path(__file__).with_name("train_passes.py")


@pytest.mark.core
@pytest.mark.process
@pytest.mark.timeout(600)
@pytest.mark.parametrize("engine", ENGINES)
def test_resizes_around_an_evaluation_in_mid_epoch_leave_nothing_out(tmp_path: Path, engine: str) -> None:
    """3 -> 2 workers, one of which is then killed: real worlds, because shares and steps are others in each of them."""
    with training(tmp_path, engine=engine) as job:
        job.offer_usual(*HOSTS)
        job.launch_usual("-np", "3", "--min-np", "1", "--max-np", "3", script=SCRIPT)
        job.trains(3, steps=6)
        job.offer_usual(*HOSTS[:2])
        job.trains(2, steps=6)
        job.kill(HOSTS[1])
        job.trains(1)
        (job.folder / "hurry").touch()
        assert job.ends() == 0, job.said()
        (end,) = job.written("end")
    assert Counter(map(tuple, end["trained"])) == Counter((epoch, each) for epoch in range(2) for each in range(240))
    assert Counter(map(tuple, end["second"])) == Counter((epoch, each) for epoch in range(2) for each in range(50))
    assert all(each == list(range(35)) for each in end["evaluated"])
    assert len(end["evaluated"]) >= 6
    assert end["scheduled"] == 2
    holds, words = end["certified"]
    assert holds
    whole = "train, epochs 0-1: each of 240 samples once; second, epochs 0-1: each of 50 samples once"
    assert re.sub(r" \(\d+ of them in the step in which a worker died\)", "", words) == whole
