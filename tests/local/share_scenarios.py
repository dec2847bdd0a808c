"""What befalls a job of which each rank has a share, whoever has divided it; checkpoints are due after some steps."""

import re
from pathlib import Path

from testbed.local.training import Training


def restores_three_at_two(job: Training, script: Path) -> None:
    """Three workers store two checkpoints and end; two go on from the last one, to the end."""
    job.offer("a", "b", "c")
    job.launch("-np", "3", "--min-np", "3", "--max-np", "3", script=script)
    job.until(lambda: len([e for e in job.events("checkpoint") if e["saved"]]) >= 2, "two durable checkpoints")
    job.close()
    job.offer("a", "b")
    job.launch("-np", "2", "--min-np", "2", "--max-np", "2", script=script)
    assert job.ends() == 0, job.said()
    assert "restored step" in job.said()


def loses_opposite_ranks(job: Training, script: Path) -> None:
    """Ranks 1 and 3 of 4, which have each other's copies: the others say so, and go back together, to the end."""
    job.offer("a", "b", "c", "d")
    job.launch("-np", "4", "--min-np", "2", "--max-np", "4", script=script)
    job.until(lambda: any(event["saved"] for event in job.events("checkpoint")), "a durable checkpoint")
    hosts = {event["rank"]: event["host"] for event in job.events("step", size=4)}
    job.kill(hosts[1])
    killed = job.kill(hosts[3])
    job.trains(2)
    assert job.ends() == 0, job.said()
    said = (job.folder / "out").read_text()
    lost = re.search(r"the shares of ranks 1 and 3 of 4, of step (\d+) were lost with their copies", said)
    restored = re.search(r"restored step (\d+)", said)
    assert lost, said
    assert restored, said
    assert int(restored[1]) <= int(lost[1])
    afterwards = min(event["step"] for event in job.events("step", size=2) if event["time"] > killed)
    assert afterwards == int(restored[1]) + 1
