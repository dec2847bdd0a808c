"""Checks of a job description beyond single values. Each is a pure function from a JobSpec to problems.

Where to change what:

- answer a name that people bring from elsewhere with the key that means it: `meant_keys.py`;
- add a key that a PyTorchJob or an MPIJob v1 cannot express: `target_checks.py`, and a sample in
  `tests/mpijob/kinds_of_jobs.py`, which makes the table of docs/keys.md.
"""

from hvd_elastic.mpijob.checks import (
    engine_checks,
    hardware_checks,
    machine_checks,
    name_checks,
    network_checks,
    placement_checks,
    pod_checks,
    policy_checks,
    size_checks,
    stage_checks,
    target_checks,
    volume_checks,
)
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.description.target import Target
from hvd_elastic.priorityclasses.problem import Problem

_CHECKS = (
    size_checks.problems,
    engine_checks.problems,
    hardware_checks.problems,
    machine_checks.problems,
    placement_checks.problems,
    pod_checks.problems,
    policy_checks.problems,
    network_checks.problems,
    volume_checks.problems,
    stage_checks.problems,
    name_checks.problems,
)


def job_problems(spec: JobSpec) -> list[Problem]:
    """Every contradiction between keys. These hold wherever the job runs."""
    return [problem for check in _CHECKS for problem in check(spec)]


def job_notes(spec: JobSpec) -> list[str]:
    """What whoever generates or submits the job should know."""
    return [*engine_checks.notes(spec), *network_checks.notes(spec), *policy_checks.notes(spec)]


def job_assumptions(spec: JobSpec) -> list[str]:
    """What whoever applies the manifests without `submit` should look at in the cluster."""
    return list(policy_checks.assumptions(spec))


def target_problems(spec: JobSpec, target: Target) -> list[Problem]:
    """Why a job without contradictions cannot be written as `target`."""
    return list(target_checks.problems(spec, target))
