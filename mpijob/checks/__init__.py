"""What a job description must not contradict. Each check is a pure function from a JobSpec to problems."""

from mpijob.checks import hardware, names, placement, policy, sizes, targets, volumes
from mpijob.spec import JobSpec
from mpijob.target import Target
from priorityclasses.problem import Problem

_CHECKS = (sizes.problems, hardware.problems, placement.problems, policy.problems, volumes.problems, names.problems)


def contradictions(spec: JobSpec) -> list[Problem]:
    """Every contradiction between keys, wherever the job is to run."""
    return [problem for check in _CHECKS for problem in check(spec)]


def unrenderable(spec: JobSpec, target: Target) -> list[Problem]:
    """Why a job that is right in itself cannot be written as `target`."""
    return list(targets.problems(spec, target))
