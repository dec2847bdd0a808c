"""Compares what a worker asks for with what machines have, by the table of machine types and the job's own `machine`.

A worker that fits nowhere stays Pending for ever, and no autoscaler adds a node for it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal
from typing import Final

from hvd_elastic.mpijob.clouds.allocatable import allocatable
from hvd_elastic.mpijob.clouds.cloud import Cloud
from hvd_elastic.mpijob.clouds.machine_types import MachineType, efa_adapters, find_machine, machine_tables
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.priorityclasses.problem import Problem
from hvd_elastic.system import quantity
from hvd_elastic.system.plain_words import count_words

_OR_SAY: Final = "or say with `machine` what the nodes have"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSize:
    """What the pods of one node get, at most. None: not known."""

    name: str
    gpus: int | None
    cpus: Decimal | None
    memory_bytes: int | None


def problems(spec: JobSpec) -> Iterator[Problem]:
    """Checks that a worker fits into its machine, that the machine is still to be had, and its adapters."""
    machine = find_machine(spec.cloud, spec.instance_type) if spec.instance_type else None
    if machine is not None:
        yield from _wrong_machine(spec, machine)
    elif spec.instance_type:
        yield from _of_another_cloud(spec, spec.instance_type)
    if spec.instance_type or _describes_nodes(spec):
        yield from _too_large(spec, node_size(spec, machine))
    elif spec.gpu_type is not None:
        yield from _no_machine_for(spec, spec.gpu_type.value)
    yield from _adapters(spec)


def node_size(spec: JobSpec, machine: MachineType | None) -> NodeSize:
    """What a node of the job has: by the job's `machine`, else by the table."""
    told, known = spec.machine, allocatable(spec.cloud, machine) if machine else None
    return NodeSize(
        name=spec.instance_type or "the node",
        gpus=told.gpus if told.gpus is not None else machine.gpus if machine and spec.accelerator.is_whole else None,
        cpus=quantity.parse(told.cpu) if told.cpu else known.cpus if known else None,
        memory_bytes=int(quantity.parse(told.memory)) if told.memory else known.memory_bytes if known else None,
    )


def fits(spec: JobSpec, node: NodeSize) -> bool:
    """Whether one worker may fit into a node of this size."""
    return not any(_too_large(spec, node))


def _describes_nodes(spec: JobSpec) -> bool:
    return any(value is not None for value in (spec.machine.gpus, spec.machine.cpu, spec.machine.memory))


def _too_large(spec: JobSpec, node: NodeSize) -> Iterator[Problem]:
    workers = spec.workers
    if node.gpus is not None and workers.gpus > node.gpus:
        what, way_out = f"is more than the {node.gpus} of {node.name}", f"write {node.gpus} or less"
        yield Problem(path="workers.gpus", value=workers.gpus, what=what, way_out=way_out)
    if node.cpus is not None and quantity.parse(workers.cpu) > node.cpus:
        most = f"{int((node.cpus * 1000).to_integral_value(ROUND_FLOOR))}m"
        what = f"is more than the {most} that pods get of {node.name}, at most"
        yield Problem(path="workers.cpu", value=workers.cpu, what=what, way_out=f"write {most} or less, {_OR_SAY}")
    if node.memory_bytes is not None and quantity.parse(workers.memory) > node.memory_bytes:
        most = quantity.mebibytes(Decimal(node.memory_bytes))
        what = f"is more than the {most} that pods get of {node.name}, at most"
        way_out = f"write {most} or less, {_OR_SAY}"
        yield Problem(path="workers.memory", value=workers.memory, what=what, way_out=way_out)


def _wrong_machine(spec: JobSpec, machine: MachineType) -> Iterator[Problem]:
    if spec.gpu_type is not None and machine.gpu != spec.gpu_type:
        what = f"has {machine.gpu}, not gpu_type {spec.gpu_type}"
        way_out = f"choose among {_names(spec.cloud, spec.gpu_type)}"
        yield Problem(path="instance_type", value=machine.name, what=what, way_out=way_out)
    if spec.workers.gpus and not spec.accelerator.is_nvidia:
        what, way_out = f"has {machine.gpu} of NVIDIA, not {spec.workers.gpu_resource}", "name a machine that has them"
        yield Problem(path="instance_type", value=machine.name, what=what, way_out=way_out)
    if machine.retired is not None:
        what = f"is not to be had: {spec.cloud} retired it on {machine.retired}"
        table = machine_tables()[spec.cloud]
        others = [other for other in table.machines.values() if other.gpus >= machine.gpus and not other.retired]
        way_out = f"choose another, such as {others[0].name}" if others else "choose another"
        yield Problem(path="instance_type", value=machine.name, what=what, way_out=way_out)


def _of_another_cloud(spec: JobSpec, name: str) -> Iterator[Problem]:
    owners = [cloud for cloud in machine_tables() if find_machine(cloud, name)]
    if owners and spec.cloud is not Cloud.ANY:
        what = f"is a machine type of {owners[0]}, not of {spec.cloud}"
        yield Problem(path="instance_type", value=name, what=what, way_out=f"set cloud: {owners[0]}")


def _no_machine_for(spec: JobSpec, gpu: str) -> Iterator[Problem]:
    """Where only the GPU is named: a problem if all machines with it are known to be too small, or retired."""
    table = machine_tables().get(spec.cloud)
    known = table.with_gpu(gpu) if table else ()
    current = [machine for machine in known if not machine.retired]
    if not known or any(fits(spec, node_size(spec, machine)) for machine in current):
        return
    if not current:
        what = f"is not to be had: {spec.cloud} retired every machine with it that is known"
        yield Problem(path="gpu_type", value=gpu, what=what, way_out=f"choose another, {_OR_SAY}")
        return
    what = f"is in no machine of {spec.cloud} that a worker with {_wants(spec)} fits into"
    way_out = f"lower workers, {_OR_SAY}; known: {_names(spec.cloud, gpu)}"
    yield Problem(path="gpu_type", value=gpu, what=what, way_out=way_out)


def _wants(spec: JobSpec) -> str:
    workers = spec.workers
    return f"{count_words(workers.gpus, 'GPU')}, {workers.cpu} of CPU and {workers.memory} of memory"


def _names(cloud: str, gpu: str) -> str:
    current = [machine.name for machine in machine_tables()[cloud].with_gpu(gpu) if not machine.retired]
    return ", ".join(current) or "none that is known"


def _adapters(spec: JobSpec) -> Iterator[Problem]:
    wanted, instance = spec.workers.efa, spec.instance_type
    if not wanted:
        return
    if spec.cloud is not Cloud.EKS:
        what = f"is not available with cloud: {spec.cloud}"
        yield Problem(path="workers.efa", value=wanted, what=what, way_out="set cloud: eks")
    has = spec.machine.efa if spec.machine.efa is not None else efa_adapters().get(instance or "")
    if instance is None:
        what = "needs the instance type: each has its own number of adapters"
        yield Problem(path="workers.efa", value=wanted, what=what, way_out="set instance_type")
    elif has is None:
        known = ", ".join(sorted(efa_adapters()))
        what = "is not known to have Elastic Fabric Adapters"
        way_out = f"set machine.efa if it has some, or choose among {known}"
        yield Problem(path="instance_type", value=instance, what=what, way_out=way_out)
    elif wanted > has:
        what = f"is more than the {has} that {instance} has"
        yield Problem(path="workers.efa", value=wanted, what=what, way_out=f"write {has} or less")
