"""What a cluster shall have: the same words for every cloud."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from typing import Final

from hvd_elastic.mpijob.clouds import kubernetes_versions
from hvd_elastic.mpijob.clouds.cloud import Cloud
from hvd_elastic.mpijob.clouds.cloud_nodes import NODES
from hvd_elastic.mpijob.clouds.gpu_types import GpuType
from hvd_elastic.mpijob.clouds.machine_types import MachineType, find_machine, machine_tables
from hvd_elastic.priorityclasses.problem import Problem

LAUNCHER_MACHINES: Final = {Cloud.EKS: "m6i.xlarge", Cloud.GKE: "e2-standard-4", Cloud.AKS: "Standard_D4s_v5"}
"""4 CPUs and 16 GiB: a launcher asks for half a CPU and 1 GiB, and the cluster's own pods run beside it."""

_NAME: Final = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")
"""What all three clouds take. GKE: 40 characters."""
_PLACE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,89}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    """A cluster of one cloud."""

    cloud: Cloud
    name: str
    region: str
    zones: tuple[str, ...]
    """As the cloud's tools write them: `us-east-1a`, `us-central1-b`, and on AKS `1`. GPU nodes are in these only."""
    machines: tuple[str, ...]
    """GPU machine types of workers."""
    max_nodes: int = 8
    """Most nodes of each pool of workers. The fewest are none."""
    max_launcher_nodes: int = 4
    launcher_machine: str | None = None
    """Default: LAUNCHER_MACHINES."""
    account: str | None = None
    """GKE: the project. AKS: the resource group. EKS: none, the credentials say it."""
    version: str = kubernetes_versions.DEFAULT
    """Of Kubernetes."""

    @property
    def launchers(self) -> str:
        """The machine type of nodes for launchers."""
        return self.launcher_machine or LAUNCHER_MACHINES[self.cloud]

    def pools(self) -> tuple["WorkerPool", ...]:
        """Pools of workers: each machine type, on spot and on demand."""
        found = []
        for number, name in enumerate(self.machines, start=1):
            machine = find_machine(self.cloud, name)
            assert machine is not None
            found += [WorkerPool(machine=machine, spot=spot, number=number) for spot in (True, False)]
        return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPool:
    """Nodes of one machine type and one kind of capacity, of which there are none until a worker needs one."""

    machine: MachineType
    spot: bool
    number: int
    """Of the machine type in the plan, from 1. Names of AKS have no room for more."""

    @property
    def gpu(self) -> GpuType:
        """The GPU as a job description names it."""
        return GpuType(self.machine.gpu)

    @property
    def name(self) -> str:
        """Unique in the cluster, and a name of a node group or pool of EKS and GKE."""
        size = re.sub(r"[^a-z0-9]+", "-", self.machine.name.lower())
        return f"{size}-{'spot' if self.spot else 'od'}"[-40:].lstrip("-")


def plan_problems(plan: ClusterPlan, today: date | None = None) -> Iterator[Problem]:
    """What is wrong with a plan; paths are flags of `hvd-elastic cluster`.

    `today`: a version whose support has ended is a problem of a cluster that is made.
    """
    if not _NAME.fullmatch(plan.name):
        what = "is not a name of a cluster: lower case letters, digits and -, 40 at most"
        yield Problem(path="name", value=plan.name, what=what, way_out="begin with a letter")
    places = [("--region", plan.region), *(("--zone", zone) for zone in plan.zones), ("--version", plan.version)]
    for flag, value in places:
        if not _PLACE.fullmatch(value):
            yield Problem(path=flag, value=value, what="is not a name", way_out="write it as the cloud does")
    for flag, number in (("--max-nodes", plan.max_nodes), ("--max-launcher-nodes", plan.max_launcher_nodes)):
        if number < 1:
            yield Problem(path=flag, value=number, what="is less than one", way_out="write 1 or more")
    if plan.cloud is Cloud.EKS and len(set(plan.zones)) < 2:
        what = "is too few: the control plane of EKS needs two zones"
        yield Problem(path="--zone", value=", ".join(plan.zones), what=what, way_out="name two or more")
    if today and (last := kubernetes_versions.ended(plan.version, plan.cloud, today)):
        others = ", ".join(kubernetes_versions.current(plan.cloud, today)) or "a newer one"
        what = f"has ended: the standard support of {plan.cloud.upper()} went up to {last}"
        yield Problem(path="--version", value=plan.version, what=what, way_out=f"choose {others}")
    yield from _account_problems(plan)
    yield from _machine_problems(plan)


def _account_problems(plan: ClusterPlan) -> Iterator[Problem]:
    needed = {Cloud.GKE: "--project", Cloud.AKS: "--resource-group"}.get(plan.cloud)
    if needed and (plan.account is None or not _PLACE.fullmatch(plan.account)):
        yield Problem(path=needed, value=plan.account, what=f"is needed for {plan.cloud}", way_out="name one")


def _machine_problems(plan: ClusterPlan) -> Iterator[Problem]:
    known = {gpu.value for gpu in GpuType if NODES[plan.cloud].knows(gpu)}
    usable = [one for one in machine_tables()[plan.cloud].machines.values() if one.gpu in known and not one.retired]
    for name in plan.machines:
        machine = find_machine(plan.cloud, name)
        if machine in usable:
            continue
        what = f"is retired since {machine.retired}" if machine and machine.retired else "is not a GPU machine type"
        way_out = f"choose among {', '.join(one.name for one in usable)}"
        yield Problem(path="--machine", value=name, what=f"{what} of {plan.cloud}", way_out=way_out)
    if not plan.machines:
        yield Problem(path="--machine", value=None, what="is missing", way_out="name a machine type of workers")
