"""How long the MPI Operator needs until a job of which many workers leave or come back is as it is asked to be."""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Self

from benchmarks.mpi_operator import control_plane
from benchmarks.mpi_operator.measured_scale import Change, MeasuredScale, Pace
from benchmarks.mpi_operator.scaled_job import NAME, ScaledJob, nodes, operator_pace, repeatedly, wait_leading
from benchmarks.report import measurements
from benchmarks.report.record import NEVER
from hvd_elastic.mpijob.contract import ANNOTATION_STATUS
from testbed.cluster.site import Site, make_namespace, remove_namespace
from testbed.kube import gomodules, kwok, waiting
from testbed.kube.kubectl import Kubectl

PATIENCE_SECONDS: Final = 90.0
"""For a change. An operator that has not finished by then is started anew."""
EACH_SECONDS: Final = 2.0
"""Between two statuses, as they were written before they were held back."""


class Operator(StrEnum):
    """Which MPI Operator."""

    STOCK = "stock"
    PATCHED = "patched"

    @property
    def program(self) -> Path | None:
        """None: the cluster's own."""
        if self is Operator.STOCK:
            return None
        return gomodules.binaries(gomodules.PATCHED_MPI_OPERATOR) / "mpi-operator"


class Writes(StrEnum):
    """Who writes the live status onto the MPIJob meanwhile."""

    NOBODY = "nobody"
    SIDECAR = "the sidecar"
    EACH_2_S = "each 2 s"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredWaits:
    """A job of one size, halved and grown again some times."""

    operator: Operator
    writes: Writes
    workers: int
    pace: Pace
    seconds: dict[Change, list[float]] = field(default_factory=lambda: {Change.HALF_LEAVE: [], Change.HALF_BACK: []})
    """From each change until the pods are as asked for and the operator has noted how many run; NEVER: not in time."""
    cpu: list[float] = field(default_factory=list)
    """CPU seconds of the operator over each change that came to its end."""

    def keep(self, folder: Path) -> None:
        """Write it into a file, for a report."""
        measurements.keep(folder, f"{self.operator}-{self.writes.name}-{self.workers}-{self.pace}", self)

    @classmethod
    def from_json(
        cls, *, operator: str, writes: str, pace: Mapping[str, Any], seconds: Mapping[str, list[float]], **fields: Any
    ) -> Self:
        """What `keep` has written."""
        return cls(
            operator=Operator(operator),
            writes=Writes(writes),
            pace=Pace(**pace),
            seconds={Change(name): times for name, times in seconds.items()},
            **fields,
        )

    @property
    def order(self) -> tuple[int, int, int]:
        """Of the rows of a table."""
        return self.workers, [*Operator].index(self.operator), [*Writes].index(self.writes)


def measure(site: Site, operator: Operator, writes: Writes, *, workers: int, pace: Pace, rounds: int) -> MeasuredWaits:
    """Halve a job of so many workers, and grow it again, `rounds` times. Raises DeadlineError if it does not start."""
    measured = MeasuredWaits(operator=operator, writes=writes, workers=workers, pace=pace)
    with ExitStack() as stack:
        stack.enter_context(operator_pace(site, pace, program=operator.program))
        stack.enter_context(nodes(site, -(-workers // kwok.GPUS)))
        kubectl = make_namespace(site, f"bench-wait-{workers}")
        stack.callback(remove_namespace, site, kubectl.namespace)
        job = ScaledJob(
            site=site,
            kubectl=kubectl,
            workers=workers,
            found=MeasuredScale(workers=workers, pace=pace),
            stack=stack,
            keeps_record=writes is Writes.SIDECAR,
        )
        job.start()
        for _ in range(rounds):
            for change, count in ((Change.HALF_LEAVE, workers // 2), (Change.HALF_BACK, workers)):
                _change(site, job, measured, change, count)
    return measured


def _change(site: Site, job: ScaledJob, measured: MeasuredWaits, change: Change, count: int) -> None:
    machine = site.local()

    def cpu() -> float:
        return control_plane.cpu_seconds(machine, {})[control_plane.OPERATOR]

    def done() -> bool:
        return job.settled(count) and _noted(job.kubectl) == count

    with _written(job.kubectl, measured.writes):
        before, began = cpu(), time.time()
        job.scale(count)
        in_time = waiting.reached(done, PATIENCE_SECONDS, every_seconds=0.5)
        measured.seconds[change].append(time.time() - began if in_time else NEVER)
    if in_time:
        measured.cpu.append(cpu() - before)
    else:
        machine.restart_mpi_operator()
        wait_leading(site)
        waiting.until("an operator that was started anew has worked it off", done, within_seconds=PATIENCE_SECONDS)
    print(f"  {time.strftime('%H:%M:%S')} {change}: {measured.seconds[change][-1]:.1f} s", flush=True)


def _noted(kubectl: Kubectl) -> int:
    """How many workers run, as the operator last wrote it."""
    replicas = kubectl.get("mpijob", NAME).get("status", {}).get("replicaStatuses", {})
    return int(replicas.get("Worker", {}).get("active", 0))


@contextmanager
def _written(kubectl: Kubectl, writes: Writes) -> Iterator[None]:
    """Write onto the MPIJob each 2 s, where that is asked for."""
    if writes is not Writes.EACH_2_S:
        yield
        return

    def write() -> None:
        change = {"metadata": {"annotations": {ANNOTATION_STATUS: json.dumps({"unix": time.time()})}}}
        kubectl.patch("mpijob", NAME, change)

    with repeatedly(write, every_seconds=EACH_SECONDS):
        yield
