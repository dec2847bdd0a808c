"""The table of known fields matches the published schemas, and the published examples pass the schema rules."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from hvd_elastic.mpijob import lint
from hvd_elastic.mpijob.lint.job.mpijob_fields import field_table, nearest_field
from tests.mpijob.modules import LEGACY_MPIJOB, MPI_OPERATOR, ModuleFile

_EXAMPLES = "examples/v2beta1"
PUBLISHED = [
    ModuleFile(module=MPI_OPERATOR.module, version=MPI_OPERATOR.version, path=f"{_EXAMPLES}/{name}.yaml")
    for name in (
        "horovod/tensorflow-mnist",
        "pi/pi",
        "pi/pi-intel",
        "pi/pi-mpich",
        "tensorflow-benchmarks/tensorflow-benchmarks",
    )
] + [
    ModuleFile(module=LEGACY_MPIJOB.module, version=LEGACY_MPIJOB.version, path=f"examples/mpi/{name}.yaml")
    for name in ("tensorflow-mnist", "tensorflow-mnist-elastic")
]


@pytest.mark.parametrize(("file", "version"), [(MPI_OPERATOR, "v2beta1"), (LEGACY_MPIJOB, "v1")])
def test_the_table_has_the_published_fields(file: ModuleFile, version: str) -> None:
    crd: Any = yaml.load(file.local().read_text(), Loader=yaml.CSafeLoader)
    (schema,) = [v["schema"]["openAPIV3Schema"] for v in crd["spec"]["versions"] if v["name"] == version]
    spec = schema["properties"]["spec"]
    missing = list(_missing(spec, field_table()[f"MPIJob/{version}"]["spec"], "spec"))
    # Fields that Kubernetes added after the release in the table, or removed before it, do not matter here.
    assert [path for path in missing if path.count(".") < 4] == []


def _missing(schema: Mapping[str, Any], kind: str, path: str) -> list[str]:
    """Paths that the schema has and the table does not."""
    if kind.startswith("["):
        return _missing(schema.get("items", {}), kind[1:-1], f"{path}[]")
    fields = field_table().get(kind)
    properties = schema.get("properties")
    if path == "spec.mpiReplicaSpecs":
        return _missing(schema["additionalProperties"], "ReplicaSpec", f"{path}.*")
    if fields is None or properties is None:
        return []
    own = [f"{path}.{name}" for name in properties if name not in fields]
    below = [
        found
        for name, child in properties.items()
        if name in fields
        for found in _missing(child, fields[name], f"{path}.{name}")
    ]
    return own + below


@pytest.mark.parametrize("file", PUBLISHED, ids=lambda file: Path(file.path).stem)
def test_published_examples_are_read(file: ModuleFile) -> None:
    documents, problems = lint.read(file.local().read_text(), file.path)
    report = lint.check(documents)
    assert problems == []
    assert report.jobs
    # Published manifests are valid, so a finding of a schema rule would be an error of the linter.
    assert [found.rule.id for found in report.findings if found.rule.group == "schema"] == []


def test_nearest_field() -> None:
    fields = field_table()["PodSpec"]
    assert nearest_field("priorityclassname", fields) == "priorityClassName"
    assert nearest_field("terminationGracePeriod", fields) == "terminationGracePeriodSeconds"
    assert nearest_field("qwertz", fields) == ""
