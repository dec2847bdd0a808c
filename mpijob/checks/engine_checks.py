"""What needs Horovod, in a job that trains without it."""

from collections.abc import Iterator

from hvd_elastic.mpijob.contract import Engine
from hvd_elastic.mpijob.description.job_spec import JobSpec, LauncherKind
from hvd_elastic.priorityclasses.problem import Problem

_OF_HOROVOD = "HOROVOD_"


def problems(spec: JobSpec) -> Iterator[Problem]:
    """Checks what stands beside `engine: torch`."""
    if spec.engine is not Engine.TORCH:
        return
    if spec.launcher.kind is not LauncherKind.LAUNCH:
        what = "is Horovod's own launcher: its workers find each other by Horovod alone, not by torch.distributed"
        way_out = "write launch, or engine: horovod"
        yield Problem(path="launcher.kind", value=spec.launcher.kind.value, what=what, way_out=way_out)
    if spec.gloo_timeout is not None:
        what = "has no effect with engine: torch: the launcher and the connections tell of a lost peer"
        yield Problem(path="gloo_timeout", value=spec.gloo_timeout, what=what, way_out="leave it out")
    for name in spec.env:
        if name.startswith(_OF_HOROVOD):
            what = "has no effect: it is a setting of Horovod's, and the job trains with engine: torch"
            yield Problem(path=f"env.{name}", value=name, what=what, way_out="leave it out")


def notes(spec: JobSpec) -> Iterator[str]:
    """What was not seen yet."""
    if spec.engine is Engine.TORCH and spec.workers.gpus:
        yield (
            "engine: torch was not tried on GPUs: where a worker is lost, the others may wait in NCCL until its own "
            "time-out ends them"
        )
