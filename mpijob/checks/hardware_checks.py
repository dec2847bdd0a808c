"""Compares what a worker asks for with its own parts, and with what its cloud's nodes are like."""

from collections.abc import Iterator
from typing import Final

from hvd_elastic.mpijob.clouds import efa
from hvd_elastic.mpijob.clouds.accelerators import ONE_ONLY, Accelerator, is_accelerator
from hvd_elastic.mpijob.clouds.cloud_nodes import NODES, spot_grace_limit
from hvd_elastic.mpijob.clouds.gpu_types import GpuType
from hvd_elastic.mpijob.contract import GPU_RESOURCE
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.priorityclasses.problem import Problem
from hvd_elastic.system import quantity
from hvd_elastic.system.plain_words import count_words

_HUGE_PAGES: Final = "hugepages-"


def problems(spec: JobSpec) -> Iterator[Problem]:
    """Checks GPUs, CPUs, memory, and the time that a reclaimed machine gives its pods."""
    yield from _gpus(spec)
    yield from _resources(spec)
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
    yield from _accelerator(spec, spec.accelerator)
    if spec.gpu_type is not None:
        yield from _gpu_type(spec, spec.gpu_type)


def _accelerator(spec: JobSpec, accelerator: Accelerator) -> Iterator[Problem]:
    gpus = spec.workers.gpus
    if not gpus and accelerator.resource != GPU_RESOURCE:
        what = "is what workers.gpus counts, and workers ask for none"
        yield Problem(path="workers.gpu_resource", value=accelerator.resource, what=what, way_out="set workers.gpus")
    if gpus > 1 and (why := ONE_ONLY.get(accelerator.portion)):
        what = f"is more than the one {accelerator.portion} that a worker can use ({why})"
        yield Problem(path="workers.gpus", value=gpus, what=what, way_out="write 1, and raise workers.max instead")


def _gpu_type(spec: JobSpec, wanted: GpuType) -> Iterator[Problem]:
    if not spec.workers.gpus:
        what = "names a GPU, but workers ask for none"
        yield Problem(path="gpu_type", value=wanted.value, what=what, way_out="set workers.gpus")
    if not spec.accelerator.is_nvidia:
        what = f"is a GPU of NVIDIA, and workers ask for {spec.workers.gpu_resource}"
        label = spec.accelerator.product_label
        way_out = f"leave it out, and name nodes in node_labels{f' by their {label}' if label else ''}"
        yield Problem(path="gpu_type", value=wanted.value, what=what, way_out=way_out)
        return
    if not NODES[spec.cloud].knows(wanted):
        known = ", ".join(gpu for gpu in GpuType if NODES[spec.cloud].knows(gpu))
        what = f"is not available with cloud: {spec.cloud}"
        yield Problem(path="gpu_type", value=wanted.value, what=what, way_out=f"choose among {known}")


def _resources(spec: JobSpec) -> Iterator[Problem]:
    """What the API server would refuse in `workers.resources`, and what another key asks for already."""
    workers = spec.workers
    taken = {workers.gpu_resource: "workers.gpus", efa.RESOURCE: "workers.efa"}
    if workers.disk is not None:
        taken["ephemeral-storage"] = "workers.disk"
    for name, text in workers.resources.items():
        path, amount = f"workers.resources.{name}", quantity.parse(text)
        if name in taken:
            yield Problem(
                path=path, value=text, what=f"is what {taken[name]} asks for", way_out=f"set {taken[name]} alone"
            )
        elif is_accelerator(name):
            way_out = f"write workers.gpus: {text} and workers.gpu_resource: {name}"
            yield Problem(path=path, value=text, what="is an accelerator, and decides the slots", way_out=way_out)
        elif "/" in name and amount % 1:
            yield Problem(path=path, value=text, what="is not a whole number", way_out="write one, such as 1")
        elif name.startswith(_HUGE_PAGES) and amount % (page := quantity.parse(name.removeprefix(_HUGE_PAGES))):
            what = f"is not a whole number of pages of {name.removeprefix(_HUGE_PAGES)}"
            way_out = f"write a multiple, such as {quantity.mebibytes(max(page, amount // page * page))}"
            yield Problem(path=path, value=text, what=what, way_out=way_out)


def _memory(spec: JobSpec) -> Iterator[Problem]:
    memory, shm = quantity.parse(spec.workers.memory), quantity.parse(spec.workers.shm)
    if shm >= memory:
        what = f"is part of workers.memory {spec.workers.memory} and leaves nothing of it"
        yield Problem(
            path="workers.shm", value=spec.workers.shm, what=what, way_out="lower it, or raise workers.memory"
        )
