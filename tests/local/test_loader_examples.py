"""The examples of docs/loaders.md, one a library, each over a resize: every epoch has as many samples as it should."""

import re
from collections import defaultdict
from pathlib import Path

import pytest

from testbed.local.training import training

EXAMPLES = Path(__file__).parents[2] / "examples"
DIGITS = 1797


@pytest.mark.process
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("name", "arguments", "samples"),
    [
        ("loaders_weighted.py", [], 1638),
        ("loaders_bucketing.py", [], 800),
        ("loaders_stateful.py", [], DIGITS),
        ("loaders_webdataset.py", [], DIGITS),
        ("loaders_datasets.py", [], DIGITS),
        ("loaders_datasets.py", ["--streaming"], DIGITS),
    ],
)
def test_each_epoch_has_its_samples_over_a_resize(
    tmp_path: Path, name: str, arguments: list[str], samples: int
) -> None:
    with training(tmp_path) as job:
        job.offer("a", "b")
        script, flags = EXAMPLES / name, ["-np", "2", "--min-np", "1"]
        job.launch(*flags, script=script, arguments=["--epochs", "20", *arguments])
        job.trains(2)
        job.offer("a")
        assert job.ends() == 0, job.said()
        assert {event["size"] for event in job.events("step")} == {1, 2}, "it was resized"
        taken = defaultdict(set)
        for event in job.events("step", rank=0):
            taken[event["epoch"]].add(event["samples"])
        assert {epoch: max(counts) for epoch, counts in taken.items()} == dict.fromkeys(range(20), samples)
        assert float(re.findall(r"accuracy (\d\.\d+)", job.said())[-1]) > 0.8
