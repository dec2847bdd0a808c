"""A system that runs jobs on the test cluster, and the job that it is asked to run."""

import argparse
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from testbed.cluster import jobs
from testbed.cluster.jobs import Job
from testbed.cluster.site import Site
from testbed.kube.cluster import Cluster
from testbed.kube.kubectl import Kubectl, condition_of

SIZE: Final = 3
"""Workers of a job at full size."""
SPOT: Final = {"kubernetes.io/hostname": "spot"}


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedJob:
    """What a system is asked to run."""

    node_labels: Mapping[str, str]
    """Of the nodes for its workers."""
    start: int = SIZE
    """Workers with which it begins."""
    size: int = SIZE
    """Workers at most."""
    shared: Path | None = None
    """The folder for its results, where that is there already."""
    options: Sequence[str] = ()
    """Of its script."""
    keys: Mapping[str, Any] = field(default_factory=dict)
    """Of its description, for the product. Others have none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """Something that runs jobs."""

    name: str
    title: str
    program: str
    """In the command line of a training process."""
    submit: Callable[[Site, Kubectl, WantedJob], Job]
    """Starts the job."""
    installed: Callable[[Site], AbstractContextManager[None]] = lambda _site: nullcontext()
    """What it needs beside the MPI Operator, or in its place."""
    serving_queue: str = ""
    """The queue of Kueue in which inference asks; empty: none."""
    serving_class: str = "inference-pc"
    """The PriorityClass of inference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherJob(Job):
    """A job that is no MPIJob."""

    resource: str
    """Its kind, as kubectl names it."""

    def require_alive(self) -> None:
        """Raise if the job has failed."""
        job = self.kubectl.get(self.resource, self.name)
        assert condition_of(job, "Failed") != "True", f"{self.name} has failed:\n{self.describe()}"


def applied(kind: Callable[..., Job], site: Site, kubectl: Kubectl, wanted: WantedJob, manifest: dict[str, Any]) -> Job:
    """Apply a manifest that no generator of ours has touched, with the folder for its results."""
    shared = wanted.shared or jobs.share_results(site, kubectl)
    began = time.time()
    kubectl.apply([manifest])
    return kind(kubectl=kubectl, name=manifest["metadata"]["name"], shared=shared, applied=began)


@contextmanager
def operated(start: Callable[[Cluster], object], stop: Callable[[Cluster], None], site: Site) -> Iterator[None]:
    """Have an operator that a system needs; it is stopped also after a start that did not come to its end."""
    try:
        start(site.local())
        yield
    finally:
        stop(site.local())


class _Named(Protocol):
    @property
    def name(self) -> str: ...


def add_systems_option(
    parser: argparse.ArgumentParser, systems: Sequence[_Named], *, default: Sequence[_Named] = ()
) -> None:
    """Let a benchmark run with some of its systems, `--systems NAME,NAME`; without it, with the default, or all."""
    by_name = {each.name: each for each in systems}

    def chosen(names: str) -> list[_Named]:
        if unknown := [name for name in names.split(",") if name not in by_name]:
            raise argparse.ArgumentTypeError(
                f"no system is called {', '.join(unknown)}; there are {', '.join(by_name)}"
            )
        return [each for name, each in by_name.items() if name in names.split(",")]

    parser.add_argument(
        "--systems", type=chosen, default=[*(default or systems)], metavar="NAME,NAME", help="; ".join(by_name)
    )
