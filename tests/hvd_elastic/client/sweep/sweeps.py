"""A fake cluster in which sweeps can be submitted, and sweeps to submit."""

from collections.abc import Sequence
from typing import Any

from hvd_elastic.client.sweep.grid import grid_points
from hvd_elastic.client.sweep.sweep_plan import JobInput, SweepPlan, plan_sweep
from testbed.kube_api import JOBS, Json
from tests.hvd_elastic.client.operations.jobs_cluster import DESCRIPTION, JobsCluster

RUNNERS = "/apis/batch/v1/namespaces/default/jobs"
GRID = ("lr=0.1,0.01", "batch.global=256,512")


def sweep(*grid: str, at_once: int | None = None, **keys: object) -> SweepPlan:
    overrides = {key.replace("__", "."): value for key, value in keys.items()}
    job = JobInput(source=DESCRIPTION, overrides=overrides, defaults={})
    return plan_sweep(job, grid_points(grid or GRID), at_once=at_once)


class SweepCluster(JobsCluster):
    """Has batch/v1 Jobs too, and `/version`."""

    def __init__(self) -> None:
        super().__init__()
        self.objects.setdefault(RUNNERS, {})
        self.answers["/version"] = lambda _request: {}

    def suspended(self, names: Sequence[str]) -> list[bool]:
        return [bool(self.job(name)["spec"]["runPolicy"].get("suspend")) for name in names]

    def runner(self) -> Json:
        return self.objects[RUNNERS]["bert-sweep"]

    def end(self, name: str) -> None:
        condition = {"type": "Succeeded", "status": "True"}
        self.change_job(name, status={"conditions": [condition], "completionTime": "2026-01-01T00:00:00Z"})

    def changes(self, call: Any) -> list[str]:
        """What a call writes."""
        self.requests.clear()
        call()
        return self.written()

    @property
    def jobs(self) -> list[str]:
        return list(self.objects[JOBS])
