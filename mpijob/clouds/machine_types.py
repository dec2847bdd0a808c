"""The GPU machine types that clouds have, from a dated table that ships (`machine_types.yaml`).

The table lags behind the clouds. What it does not know is not refused, and a job's key `machine` overrules it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Final

TABLE: Final = "machine_types.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineType:
    """One machine type, with its capacity. Pods get less of CPUs and memory."""

    name: str
    """The node's label `node.kubernetes.io/instance-type`."""
    gpu: str
    """As `gpu_type` of a job description names it, where it has a name for it."""
    gpus: int
    cpus: int
    """Virtual CPUs."""
    memory_gib: int
    efa: int = 0
    """Elastic Fabric Adapters."""
    retired: date | None = None
    """The day after which the cloud starts no more of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineTable:
    """The machine types of one cloud."""

    source: str
    read: date
    """The day on which the source said so."""
    machines: Mapping[str, MachineType]

    def with_gpu(self, gpu: str) -> tuple[MachineType, ...]:
        """Those with this GPU, retired ones too, in the order of the table."""
        return tuple(machine for machine in self.machines.values() if machine.gpu == gpu)


@cache
def machine_tables() -> Mapping[str, MachineTable]:
    """The tables by the cloud's name: `eks`, `gke`, `aks`."""
    import yaml

    text = files(__package__).joinpath(TABLE).read_text("utf-8")
    document = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe
    return MappingProxyType({cloud: _table(entry) for cloud, entry in document.items()})


def _table(entry: Mapping[str, object]) -> MachineTable:
    machines = entry["machines"]
    assert isinstance(machines, dict)
    assert isinstance(entry["read"], date)
    found = {name: MachineType(name=name, **facts) for name, facts in machines.items()}
    return MachineTable(source=str(entry["source"]), read=entry["read"], machines=MappingProxyType(found))


def find_machine(cloud: str, name: str) -> MachineType | None:
    """A machine type of a cloud. None: the table does not know it, or has no such cloud (`any`)."""
    table = machine_tables().get(cloud)
    return table.machines.get(name) if table else None


def efa_adapters() -> dict[str, int]:
    """Elastic Fabric Adapters of each EC2 instance type that has some."""
    return {name: machine.efa for name, machine in machine_tables()["eks"].machines.items() if machine.efa}
