"""A job that many scenarios share: each finds it at full size and leaves it so.

To start a job costs half a minute of two cores, to do it harm some seconds. One that a scenario has broken for good is
replaced before the next.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from testbed.cluster import jobs
from testbed.cluster.jobs import Job
from testbed.cluster.site import Site, make_namespace, remove_namespace
from testbed.cluster.timeline import Timeline
from testbed.cluster.training import Account
from testbed.kube.errors import ClusterError, DeadlineError
from testbed.kube.kubectl import Kubectl

LAUNCHERS: Final = ("launch", "horovodrun")
BOTH_LAUNCHERS: Final = (pytest.param("launch", marks=pytest.mark.core), "horovodrun")
"""For a capability that the core shows once: with the launcher that has more of its own."""
FAULT_LAUNCHERS: Final = (
    pytest.param("launch", marks=(pytest.mark.cluster, pytest.mark.faults)),
    pytest.param("horovodrun", marks=pytest.mark.faults),
)
"""For a fault that `make test-cluster` shows with one launcher, and `make test-faults` with both."""
SAMPLES: Final = 1797
"""Of scikit-learn's digits."""
SIZE: Final = 4
"""The GPUs of the spot node."""
DURABLE: Final[dict[str, Any]] = {"url": "file:///output/checkpoints", "every": 5}


def start(
    site: Site,
    kubectl: Kubectl,
    launcher: str,
    *,
    command: Sequence[str] = jobs.PACED,
    shared: Path | None = None,
    **keys: object,
) -> Job:
    """Start a job, a paced one unless told otherwise, on all four GPUs of the spot node.

    `shared`: what `jobs.share_results` has returned, where the caller had something to do in between.
    """
    jobs.priority_classes(site)
    kind = {"kind": launcher, "cpu": "100m"}
    on_spot: dict[str, Any] = {
        "node_labels": {"kubernetes.io/hostname": "spot"},
        "launcher": kind,
        "workers": jobs.workers((1, SIZE, SIZE)),
    }
    return jobs.submit(
        site, kubectl, jobs.describe(site, kubectl, "sponge", [*command], **{**on_spot, **keys}), shared=shared
    )


def nothing_lost(account: Account, *, ended: bool = False, samples: int = SAMPLES) -> None:
    """Every step was done exactly once, in order, and every epoch that is over saw every sample.

    Unless the training has `ended`, its last epoch may still be under way.
    """
    assert account.skipped() == []
    assert account.repeated() == []
    ends = {step["epoch"]: step["samples"] for step in account.steps}
    if not ended:
        del ends[max(ends)]
    assert set(ends.values()) <= {samples}, ends


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """The standing job, as one test has it."""

    job: Job
    timeline: Timeline
    launcher: str
    began: float

    @property
    def kubectl(self) -> Kubectl:
        """Of the job's namespace."""
        return self.job.kubectl

    @property
    def account(self) -> Account:
        """What the training did since the test began."""
        return self.job.account.since(self.began)


@dataclass(slots=True, kw_only=True)
class Standing:
    """Keeps one job of a launcher alive from test to test."""

    site: Site
    launcher: str
    folder: Path
    """Where its timeline is kept. Its name is that of the job's namespace."""
    keys: Mapping[str, Any] = field(default_factory=dict)
    """Keys of the description that replace those of `start`."""
    _job: Job | None = field(default=None, init=False)
    _timeline: Timeline | None = field(default=None, init=False)

    def enter(self, name: str) -> Scenario:
        """Return the job at full size for the test of this name."""
        if self._job is None or not self._is_whole(self._job):
            self._replace()
        assert self._job is not None
        assert self._timeline is not None
        began = self._timeline.mark(name)
        return Scenario(job=self._job, timeline=self._timeline, launcher=self.launcher, began=began)

    def end(self) -> None:
        """Let the training come to its end, which must be a success, and take all of it away."""
        if self._job is None:
            return
        try:
            self._job.finish()
            assert not self._job.account.skipped()
        finally:
            self._remove()

    def _is_whole(self, job: Job) -> bool:
        """Whether it trains at full size, once what a test may have left of its load is gone."""
        job.kubectl("delete", "deployments", "--all")
        try:
            before = len(job.account.steps)
            job.wait_steps(1)
            job.wait_size(SIZE)
        except (AssertionError, ClusterError, DeadlineError):
            return False
        return len(job.account.steps) > before

    def _replace(self) -> None:
        if self._job is not None:
            self._remove()
        kubectl = make_namespace(self.site, self.folder.name)
        self._timeline = Timeline(kubectl, self.folder)
        self._timeline.start()
        self._job = start(self.site, kubectl, self.launcher, checkpoint=DURABLE, **self.keys)
        self._job.wait_size(SIZE)

    def _remove(self) -> None:
        assert self._job is not None
        assert self._timeline is not None
        self._timeline.stop(self._job.shared / "events")
        remove_namespace(self.site, self._job.kubectl.namespace)
        self._job = self._timeline = None
