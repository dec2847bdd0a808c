"""The job descriptions in examples/jobs, and the manifests that they become.

`golden_manifests()` yields what a real API server must admit: the cluster tests send each in a server-side dry run.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.description.target import Target
from hvd_elastic.mpijob.job_reader import read_job
from hvd_elastic.mpijob.manifests.render import render

_ROOT = Path(__file__).parents[2]
JOBS = _ROOT / "examples" / "jobs"
GOLDEN = Path(__file__).parent / "golden"

_TARGETS = {"legacy-v1": Target.MPIJOB_V1, "pytorchjob": Target.PYTORCHJOB}


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One job description and the kind of job that it is written as."""

    name: str
    target: Target

    @property
    def path(self) -> Path:
        return JOBS / f"{self.name}.yaml"

    @property
    def golden(self) -> Path:
        return GOLDEN / f"{self.name}.yaml"

    def spec(self) -> JobSpec:
        return read_job(self.path)

    def manifests(self) -> list[dict[str, Any]]:
        return render(self.spec(), self.target)


EXAMPLES = tuple(
    Example(name=path.stem, target=_TARGETS.get(path.stem, Target.MPIJOB)) for path in sorted(JOBS.glob("*.yaml"))
)


def golden_manifests() -> Iterator[tuple[str, dict[str, Any]]]:
    """(example's name, manifest) for every document of every golden file, in apply order."""
    for example in EXAMPLES:
        for manifest in yaml.load_all(example.golden.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader):
            yield example.name, manifest
