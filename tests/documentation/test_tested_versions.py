"""The table of tested versions says what the tests are pinned to."""

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from hvd_elastic.horovod import patch_set, wheel_build
from testbed.kube import images
from testbed.kube.gomodules import SOURCES, VERSIONS
from tests.mpijob import modules

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tested-versions.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| (?P<what>[^|]+) \| (?P<version>\d[^|]*) \| `(?P<pin>[^|`]+)` \|$", re.MULTILINE)
DEBIANS = {"trixie": "13"}
DEBIAN_PYTHON = {"13": "3.13"}
"""python3 of a Debian (packages.debian.org/python3)."""

PACKAGES = {
    "torch": "torch",
    "numpy": "numpy",
    "mpi4py": "mpi4py",
    "boto3": "boto3",
    "TensorBoard": "tensorboard",
    "the `kubernetes` package": "kubernetes",
    "pydantic": "pydantic",
    "webdataset ([streams](loaders.md))": "webdataset",
    "datasets": "datasets",
    "torchdata": "torchdata",
    "PyTorch Lightning ([libraries](libraries.md))": "pytorch-lightning",
    "Lightning Fabric": "lightning-fabric",
    "Accelerate": "accelerate",
    "MLflow (`mlflow-skinny`)": "mlflow-skinny",
    "transformers": "transformers",
    "Weights & Biases (`wandb`)": "wandb",
}
MODULES = {
    "Kubernetes": ("kubernetes-1.37", "k8s.io/kubernetes"),
    "Kubernetes, with `KUBERNETES=1.36`": ("kubernetes-1.36", "k8s.io/kubernetes"),
    "MPI Operator": ("mpi-operator-0.8", "github.com/kubeflow/mpi-operator"),
    "MPI Operator, with `OPERATOR=0.7`": ("mpi-operator-0.7", "github.com/kubeflow/mpi-operator"),
    "MPI Operator, with `OPERATOR=0.6`": ("mpi-operator-0.6", "github.com/kubeflow/mpi-operator"),
    "training-operator (`--as mpijob-v1`)": ("training-operator", "github.com/kubeflow/training-operator"),
    "Kueue": ("kueue-0.19", "sigs.k8s.io/kueue"),
    "Kueue, the last with one version of its API": ("kueue-0.14", "sigs.k8s.io/kueue"),
    "CoreDNS": ("dns-kwok", "github.com/coredns/coredns"),
    "KWOK": ("dns-kwok", "sigs.k8s.io/kwok"),
}


def of_go(folder: str, module: str) -> str:
    text = (SOURCES / folder / "go.mod").read_text(encoding="utf-8")
    (version,) = re.findall(rf"^\t{re.escape(module)} v(\S+) // indirect$", text, re.MULTILINE)
    return str(version)


@cache
def locked() -> list[dict[str, Any]]:
    """The packages of uv.lock, which takes a second to read."""
    packages: list[dict[str, Any]] = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))["package"]
    return packages


def of_lock(package: str) -> str:
    """The version, or the one for the oldest Python and the one for those after it."""
    return " and ".join(str(one["version"]) for one in locked() if one["name"] == package)


def oldest_python() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = re.match(r">=(3\.\d+)", project["requires-python"])
    assert found
    return found[1]


def debian() -> str:
    """The release whose tag the Dockerfile names beside the digest."""
    found = re.search(r"\bdebian:([a-z]+)-\d{8}-slim\b", (ROOT / "Dockerfile").read_text(encoding="utf-8"))
    assert found
    return DEBIANS[found[1]]


def test_the_table_says_what_is_pinned() -> None:
    pinned = {what: of_go(*where) for what, where in MODULES.items()}
    pinned |= {what: of_lock(package) for what, package in PACKAGES.items()}
    pinned["Horovod"] = f"{wheel_build.VERSION}+hvdelastic.{patch_set.NUMBER}"
    pinned["Debian of the image"] = debian()
    pinned["Python"] = f"{oldest_python()} and {DEBIAN_PYTHON[debian()]}"
    assert {row["what"]: row["version"] for row in ROW.finditer(PAGE)} == pinned
    assert all((ROOT / row["pin"]).is_file() for row in ROW.finditer(PAGE))


@pytest.mark.parametrize(("name", "version"), [(name, each) for name, known in VERSIONS.items() for each in known])
def test_the_go_mod_of_a_version_builds_that_version(name: str, version: str) -> None:
    module = {folder.rpartition("-")[0]: module for folder, module in MODULES.values()}[name]
    assert of_go(f"{name}-{version.rpartition('.')[0]}", module) == version


def test_schemas_and_the_requirements_name_the_same_versions() -> None:
    kubernetes, operator = VERSIONS["kubernetes"][0], VERSIONS["mpi-operator"][0]
    assert f"v{kubernetes}" == modules.KUBERNETES.version
    assert f"v{operator}" == modules.MPI_OPERATOR.version
    assert modules.PYTORCHJOB.version == f"v{of_go(*MODULES['training-operator (`--as mpijob-v1`)'])}"
    assert f"Prometheus Operator {modules.POD_MONITOR.version.removeprefix('v')}" in PAGE
    requirements = (ROOT / "docs" / "requirements.md").read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    minors = " and ".join(version.rpartition(".")[0] for version in VERSIONS["kubernetes"])
    assert f"tested on {minors}" in requirements
    assert f"tested on {operator}" in requirements
    assert f"tested: {minors}" in readme


def test_the_requirements_name_the_bounds_that_installers_hold() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lowest, beyond = re.fullmatch(r">=3\.(\d+),<3\.(\d+)", project["requires-python"]).groups()  # type: ignore[union-attr]
    (torch,) = (line.removeprefix("torch>=") for line in project["optional-dependencies"]["train"] if "torch>" in line)
    pythons = f"3.{lowest} to 3.{int(beyond) - 1}"
    requirements = (ROOT / "docs" / "requirements.md").read_text(encoding="utf-8")
    assert f"| Python | {pythons} |" in requirements
    assert f"| torch | {torch} or later |" in requirements
    assert f"Python {pythons}" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"Python {pythons} is" in (ROOT / "tools" / "setup.sh").read_text(encoding="utf-8")


def test_the_cluster_builds_its_image_over_the_debian_of_the_dockerfile() -> None:
    assert DEBIANS[images.SUITE] == debian()
    assert DEBIAN_PYTHON[debian()] == "{}.{}".format(*images.PYTHON)
