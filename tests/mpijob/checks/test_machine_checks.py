"""Workers fit into machines that clouds still have; and so do those of every example and of the documentation."""

import re
from decimal import Decimal
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.mpijob.clouds.allocatable import allocatable
from hvd_elastic.mpijob.clouds.cloud import Cloud
from hvd_elastic.mpijob.clouds.machine_types import MachineType, efa_adapters, find_machine, machine_tables
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.job_reader import read_job
from hvd_elastic.system import quantity
from tests.mpijob.examples import EXAMPLES, Example
from tests.mpijob.jobs import job, refused

_ROOT = Path(__file__).parents[3]
_FIRMWARE_AND_KERNEL = Decimal("0.075")
"""Of a machine's memory, before kubelet counts it: Karpenter's default (VM_MEMORY_OVERHEAD_PERCENT)."""

_YAML_BLOCK = re.compile(r"^```yaml[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)

machines = st.sampled_from([(cloud, name) for cloud, table in machine_tables().items() for name in table.machines])


def documented_jobs() -> list[tuple[str, str]]:
    """(page, text) of every job description in the README and the documentation."""
    found = []
    for page in (_ROOT / "README.md", *sorted((_ROOT / "docs").rglob("*.md"))):
        for block in re.findall(
            r"^```yaml[^\n]*\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
        ):
            try:
                keys = yaml.safe_load(block)
            except yaml.YAMLError:
                continue
            if isinstance(keys, dict) and {"command", "workers"} <= set(keys):
                found.append((page.name, block))
    return found


def is_filled(spec: JobSpec, machine: MachineType) -> bool:
    """Whether workers use all GPUs of a machine that is to be had, with room for what firmware and kernel take."""
    if machine.retired or machine.gpus % spec.workers.gpus:
        return False
    together = machine.gpus // spec.workers.gpus
    has = allocatable(spec.cloud, machine)
    memory = has.memory_bytes - int(machine.memory_gib * 2**30 * _FIRMWARE_AND_KERNEL)
    return (
        together * quantity.parse(spec.workers.cpu) <= has.cpus
        and together * quantity.parse(spec.workers.memory) <= memory
        and together * spec.workers.efa <= machine.efa
    )


def unfilled(spec: JobSpec) -> list[str]:
    """The machines that the job may run on, if its workers leave GPUs unused on each of them."""
    if spec.cloud is Cloud.ANY or not spec.workers.gpus:
        return []
    table = machine_tables()[spec.cloud]
    if spec.instance_type:
        choice = [table.machines[spec.instance_type]]
    else:
        assert spec.gpu_type, "an example for a cloud names its GPU or its machine"
        choice = list(table.with_gpu(spec.gpu_type))
    return [] if any(is_filled(spec, machine) for machine in choice) else [machine.name for machine in choice]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_the_workers_of_an_example_fill_a_machine_that_is_to_be_had(example: Example) -> None:
    assert unfilled(example.spec()) == []


def test_the_workers_of_documented_jobs_fill_a_machine_that_is_to_be_had() -> None:
    found = documented_jobs()
    assert len(found) >= 2
    assert {page: unfilled(read_job(text)) for page, text in found if unfilled(read_job(text))} == {}


@pytest.mark.parametrize(
    ("keys", "flag", "says"),
    [
        (
            {"cloud": "gke", "instance_type": "g2-standard-48", "workers__gpus": 4, "workers__memory": "200Gi"},
            "--workers-memory",
            "185653Mi",
        ),
        ({"cloud": "gke", "instance_type": "g2-standard-48", "workers__gpus": 5}, "--workers-gpus", "4"),
        ({"cloud": "aks", "instance_type": "Standard_NC4as_T4_v3", "workers__cpu": 4}, "--workers-cpu", "3860m"),
        ({"cloud": "aks", "instance_type": "Standard_NC6s_v3"}, "--instance-type", "retired it on 2025-09-30"),
        ({"cloud": "gke", "instance_type": "p4d.24xlarge"}, "--instance-type", "cloud: eks"),
        (
            {"cloud": "eks", "instance_type": "g5.xlarge", "gpu_type": "t4", "workers__gpus": 1},
            "--instance-type",
            "has a10g",
        ),
        ({"cloud": "gke", "gpu_type": "l4", "workers__gpus": 8, "workers__memory": "400Gi"}, "--gpu-type", "400Gi"),
        (
            {"cloud": "eks", "instance_type": "g6e.12xlarge", "workers__gpus": 4, "workers__efa": 2},
            "--workers-efa",
            "1 that",
        ),
        ({"machine__gpus": 1, "workers__gpus": 2}, "--workers-gpus", "1 of the node"),
    ],
)
def test_a_worker_that_fits_nowhere_is_refused(keys: dict[str, object], flag: str, says: str) -> None:
    found = refused(**keys)
    assert says in found[flag]
    assert len(found) == 1


@given(machines)
def test_what_pods_get_is_less_than_the_machine_has(which: tuple[str, str]) -> None:
    cloud, name = which
    machine = find_machine(cloud, name)
    assert machine is not None
    has = allocatable(cloud, machine)
    assert machine.cpus * Decimal("0.9") < has.cpus < machine.cpus
    assert 0.75 * machine.memory_gib * 2**30 < has.memory_bytes < machine.memory_gib * 2**30


@pytest.mark.parametrize(
    ("cloud", "name", "millicores"),
    [("aks", "Standard_NC4as_T4_v3", 140), ("aks", "Standard_NC64as_T4_v3", 740), ("eks", "p5.48xlarge", 550)],
)
def test_reserved_cpus_are_those_that_the_cloud_documents(cloud: str, name: str, millicores: int) -> None:
    machine = find_machine(cloud, name)
    assert machine is not None
    assert (machine.cpus - allocatable(cloud, machine).cpus) * 1000 == millicores


def test_reserved_memory_of_gke_is_that_of_its_own_example() -> None:
    """150 GiB: 9.7 GiB and 100 MiB, as the calculator after Google's page says (hatemosphere's, on GitHub)."""
    machine = MachineType(name="any", gpu="l4", gpus=1, cpus=8, memory_gib=150)
    assert (150 * 2**30 - allocatable("gke", machine).memory_bytes) / 2**30 == pytest.approx(9.8577, abs=0.0001)


def test_a_job_describes_a_machine_that_no_table_knows() -> None:
    keys = {"cloud": "eks", "instance_type": "p9.96xlarge", "workers__gpus": 8, "workers__efa": 64}
    assert "machine.efa" in refused(**keys)["--instance-type"]
    assert job(**keys, machine__efa=64).workers.efa == 64
    larger = {"cloud": "gke", "instance_type": "g2-standard-48", "workers__memory": "200Gi"}
    assert job(**larger, machine__memory="220Gi").workers.memory == "200Gi"


def test_machines_without_a_row_are_not_refused() -> None:
    assert job(cloud="gke", gpu_type="t4", workers__gpus=4, workers__memory="500Gi").gpu_type == "t4"
    assert job(cloud="eks", instance_type="x9.huge", workers__memory="900Ti").instance_type == "x9.huge"


def test_the_table_knows_the_adapters_of_current_machines() -> None:
    """docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa.html; numbers of the EC2 API."""
    assert efa_adapters()["p5.48xlarge"] == efa_adapters()["p5e.48xlarge"] == 32
    assert efa_adapters()["p5en.48xlarge"] == 16
    assert efa_adapters()["p6-b200.48xlarge"] == 8
    assert [efa_adapters()[f"g6e.{size}xlarge"] for size in (8, 12, 24, 48)] == [1, 1, 2, 4]
    assert "g6e.xlarge" not in efa_adapters()


def test_a_machine_with_gpus_of_nvidia_has_none_of_another_vendor() -> None:
    found = refused(cloud="eks", instance_type="p4d.24xlarge", workers__gpus=1, workers__gpu_resource="amd.com/gpu")
    assert "has a100 of NVIDIA, not amd.com/gpu" in found["--instance-type"]


def test_the_gpus_of_a_machine_do_not_bound_the_parts_that_it_is_cut_into() -> None:
    keys = {"cloud": "eks", "instance_type": "g5.xlarge", "machine__gpus": 0}
    mig = {"workers__gpus": 1, "workers__gpu_resource": "nvidia.com/mig-1g.10gb"}
    assert job(cloud="eks", instance_type="p4d.24xlarge", gpu_type="a100", **mig).workers.gpus == 1
    assert "--workers-gpus" in refused(**keys, **mig)
