"""Compares what a worker asks for with its own parts, and with what its cloud's nodes are like."""

from collections.abc import Iterator

from hvd_elastic.mpijob.clouds.cloud_nodes import NODES, spot_grace_limit
from hvd_elastic.mpijob.clouds.gpu_types import GpuType
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.priorityclasses.problem import Problem
from hvd_elastic.system import quantity
from hvd_elastic.system.plain_words import count_words


def problems(spec: JobSpec) -> Iterator[Problem]:
    """Checks GPUs, CPUs, memory, and the time that a reclaimed machine gives its pods."""
    yield from _gpus(spec)
    yield from _memory(spec)
    limit, grace = spot_grace_limit(spec.cloud, spec.capacity), spec.workers.grace
    if limit is not None and grace is not None and grace > limit:
        what = f"is longer than the {limit} s that a spot machine of {spec.cloud} waits"
        yield Problem(path="workers.grace", value=grace, what=what, way_out=f"write {limit} or less")


def _gpus(spec: JobSpec) -> Iterator[Problem]:
    workers = spec.workers
    if workers.gpus and workers.slots > workers.gpus:
        what = f"is more than a worker's {count_words(workers.gpus, 'GPU')}: each process needs one"
        yield Problem(path="workers.slots", value=workers.slots, what=what, way_out=f"write {workers.gpus}")
    loaders = workers.slots * workers.loaders
    if quantity.parse(workers.cpu) < loaders:
        what = f"is less than a worker's {count_words(loaders, 'loader process')} (slots x loaders)"
        yield Problem(path="workers.cpu", value=workers.cpu, what=what, way_out=f"write {loaders} or more")
    if spec.gpu_type is None:
        return
    if not workers.gpus:
        what = "names a GPU, but workers ask for none"
        yield Problem(path="gpu_type", value=spec.gpu_type.value, what=what, way_out="set workers.gpus")
    if not NODES[spec.cloud].knows(spec.gpu_type):
        known = ", ".join(gpu for gpu in GpuType if NODES[spec.cloud].knows(gpu))
        what = f"is not available with cloud: {spec.cloud}"
        yield Problem(path="gpu_type", value=spec.gpu_type.value, what=what, way_out=f"choose among {known}")


def _memory(spec: JobSpec) -> Iterator[Problem]:
    memory, shm = quantity.parse(spec.workers.memory), quantity.parse(spec.workers.shm)
    if shm >= memory:
        what = f"is part of workers.memory {spec.workers.memory} and leaves nothing of it"
        yield Problem(
            path="workers.shm", value=spec.workers.shm, what=what, way_out="lower it, or raise workers.memory"
        )
