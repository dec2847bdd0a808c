"""Layers that are released, frozen and added in mid-training, over resizes in real worlds."""

from pathlib import Path
from typing import Any

import pytest
import torch

from testbed.local.training import HOSTS, training

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]
SCRIPT = Path(__file__).with_name("train_released.py")


def undisturbed(folder: Path) -> dict[str, Any]:
    folder.mkdir()
    with training(folder) as job:
        (folder / "hurry").touch()
        job.hosts(HOSTS[0])
        job.horovodrun("-np", "1", "--min-np", "1", script=SCRIPT)
        assert job.ends() == 0, job.said()
        (weights,) = job.written("weights")
    return dict(weights)


def test_a_newcomer_has_them_and_all_average_them(tmp_path: Path) -> None:
    """1 worker releases, adds and freezes; two newcomers run the script from its top, and one of three is killed."""
    (tmp_path / "disturbed").mkdir()
    with training(tmp_path / "disturbed") as job:
        job.hosts(HOSTS[0])
        job.horovodrun("-np", "1", "--min-np", "1", "--max-np", "3", script=SCRIPT)
        job.until(lambda: [e for e in job.events("step") if e["step"] >= 17], "all changes are made")
        job.hosts(*HOSTS)
        job.trains(3)
        job.kill(HOSTS[1])
        job.trains(2)
        (job.folder / "hurry").touch()
        assert job.ends() == 0, job.said()
        assert "workers differ" not in job.said()
        found = job.written("weights")
    assert len(found) == 2
    assert found[0] == found[1]
    for name, expected in undisturbed(tmp_path / "undisturbed").items():
        torch.testing.assert_close(torch.tensor(found[0][name]), torch.tensor(expected), rtol=1e-3, atol=1e-4)
