"""What a check of the cluster is, and what it says."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from hvd_elastic.client.doctor.cluster_facts import ClusterFacts, Fact


class Level(StrEnum):
    """An error: jobs do not run here, or not as promised. A warning: some jobs or features do not."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One thing that a check has seen."""

    level: Level
    evidence: str
    """What was seen, with the names and numbers of this cluster."""
    fix: str = ""
    """A command to paste, or what to change. Empty if all is well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """A verdict, and the name of the check that gave it."""

    check: str
    verdict: Verdict


CheckFunction = Callable[[ClusterFacts], Iterator[Verdict]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One question to the cluster. Its function yields at least one verdict, also if all is well."""

    name: str
    needs: tuple[Fact, ...]
    run: CheckFunction


def check(name: str, *needs: Fact) -> Callable[[CheckFunction], Check]:
    """Makes the decorated function the check `name`, which needs these facts."""
    return lambda function: Check(name=name, needs=needs, run=function)


def ok(evidence: str) -> Verdict:
    """All is well, and this shows it."""
    return Verdict(level=Level.OK, evidence=evidence)


def warning(evidence: str, fix: str) -> Verdict:
    """Some jobs or features do not work here."""
    return Verdict(level=Level.WARNING, evidence=evidence, fix=fix)


def error(evidence: str, fix: str) -> Verdict:
    """Jobs do not run here, or not as promised."""
    return Verdict(level=Level.ERROR, evidence=evidence, fix=fix)
