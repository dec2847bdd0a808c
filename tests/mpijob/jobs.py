"""Short ways to make a job in tests."""

from typing import Any

from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.description.target import Target
from hvd_elastic.mpijob.job_reader import read_job
from hvd_elastic.mpijob.manifests.render import render
from hvd_elastic.mpijob.problems import InvalidInputError

Manifest = dict[str, Any]


def job(**keys: Any) -> JobSpec:
    """A small job with `keys` on top; `workers__min` is `workers.min`."""
    given = {key.replace("__", "."): value for key, value in keys.items()}
    return read_job(
        None, {"name": "fashion", "image": "image:1", "command": ["python", "train.py"], "workers": "1:4"} | given
    )


def one(spec: JobSpec, kind: str, target: Target = Target.MPIJOB) -> Manifest:
    """The only manifest of a kind."""
    (found,) = (manifest for manifest in render(spec, target) if manifest["kind"] == kind)
    return found


def pods(spec: JobSpec, target: Target = Target.MPIJOB) -> tuple[Manifest, Manifest]:
    """Pod specs of launcher and worker."""
    replicas = one(spec, "MPIJob", target)["spec"]["mpiReplicaSpecs"]
    return replicas["Launcher"]["template"]["spec"], replicas["Worker"]["template"]["spec"]


def refused(**keys: Any) -> dict[str, str]:
    """Path and message of every problem of a job that must be refused."""
    try:
        spec = job(**keys)
    except InvalidInputError as error:
        return {problem.path: str(problem) for problem in error.problems}
    raise AssertionError(f"was not refused: {spec}")
