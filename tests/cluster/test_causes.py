"""What the ledger, `events` and `status` say of what befalls a job, one incident after the other: all of it, no more.

A seed is all nine kinds once, in an order of its own, with `launch` if it is even, else with `horovodrun`:

CAUSE_SEEDS=12 CAUSE_FIRST_SEED=0 pytest tests/cluster/test_causes.py      (or `make causes SEEDS=12`)
"""

import os
import random
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final

import pytest

from hvd_elastic.client.connection.cluster_client import ClusterClient
from hvd_elastic.client.report.job_facts import JobFactReader, JobFacts
from hvd_elastic.client.report.job_state import JobState
from hvd_elastic.client.report.job_status import job_status
from hvd_elastic.client.report.story import tell
from hvd_elastic.discovery.ledger.entries import Entry, WorldChanged
from testbed.cluster.jobs import Job
from testbed.cluster.site import Site
from testbed.cluster.standing import DURABLE, LAUNCHERS, SIZE, start
from testbed.cluster.timeline import Timeline
from testbed.kube import waiting
from testbed.kube.errors import DeadlineError
from testbed.kube.kubectl import Kubectl
from tests.cluster.incidents import ExpectedRecord, FaultInjector, LedgerRecord, order, worlds
from tests.cluster.test_operating import call

pytestmark = [pytest.mark.cluster, pytest.mark.faults, pytest.mark.timeout(900, func_only=True)]

SEEDS: Final = int(os.environ.get("CAUSE_SEEDS", "1"))
FIRST_SEED: Final = int(os.environ.get("CAUSE_FIRST_SEED", "0"))
UNSEEN_STEPS: Final = 60
"""Of those that are repeated: what was done since the last heartbeat, at most a second old, on a slow machine."""


class WatchedLedger:
    """A job, and what its ledger has told since it was last looked at."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._reader = JobFactReader(ClusterClient.connect(namespace=job.kubectl.namespace))
        self._seen = 0

    def facts(self) -> JobFacts:
        """As `status` and `events` read them."""
        return self._reader.read(self.job.name, self.job.kubectl.namespace, events=True)

    def begin(self) -> None:
        """What is told from now on is new."""
        self._seen = len(self.facts().ledger or ())

    def new(self, facts: JobFacts) -> tuple[Entry, ...]:
        """Entries since `begin`."""
        return (facts.ledger or ())[self._seen :]

    def wait(self, is_told: Callable[[JobFacts], bool], *, within_seconds: float = 120) -> JobFacts:
        """Wait until it is told, if it ever is; what is told then."""
        last = self.facts()

        def look() -> bool:
            nonlocal last
            last = self.facts()
            return is_told(last)

        try:
            waiting.until("the ledger tells it", look, within_seconds=within_seconds, every_seconds=0.5)
        except DeadlineError:
            self.job.require_alive()
        return last

    def wait_for(self, expected: LedgerRecord) -> JobFacts:
        """Wait until as much is told, right or wrong."""
        return self.wait(lambda facts: _is_as_much(LedgerRecord.of(self.new(facts)), expected))

    def wait_whole(self, expected: ExpectedRecord) -> JobFacts:
        """The same, and until the job has been small and is whole again."""

        def is_told(facts: JobFacts) -> bool:
            changes, told = worlds(self.new(facts)), LedgerRecord.of(self.new(facts))
            is_back = expected.survivors in changes[:-1] and len(changes[-1]) == SIZE == job_status(facts).size
            return is_back and _is_as_much(told, expected.whole)

        return self.wait(is_told)


def _is_as_much(told: LedgerRecord, expected: LedgerRecord) -> bool:
    is_everyone = {pod for pod, *_ in expected.departures} <= {pod for pod, *_ in told.departures}
    counts = ((told.losses, expected.losses), (told.launchers, expected.launchers), (told.wanted, expected.wanted))
    return is_everyone and all(len(one) >= len(other) for one, other in counts)


@pytest.fixture
def watched(
    cluster: Site, namespace: Kubectl, timeline: Timeline, seed: int, monkeypatch: pytest.MonkeyPatch
) -> Iterator[WatchedLedger]:
    monkeypatch.setenv("KUBECONFIG", str(namespace.kubeconfig))
    spot = cluster.local().nodes["spot"]
    spot.set_gpus(cluster.kubectl, SIZE - 2)  # half of the job is on each node
    try:
        job = start(cluster, namespace, LAUNCHERS[seed % 2], node_labels={}, checkpoint=DURABLE, restarts=20)
        job.wait_size(SIZE)
        watched = WatchedLedger(job)
        watched.wait(lambda facts: job_status(facts).size == SIZE)
        yield watched
    finally:
        spot.link.set(up=True)
        spot.set_gpus(cluster.kubectl, spot.node.gpus)
        cluster.kubectl.wait("node", "spot", condition="Ready", within_seconds=60)


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_every_cause_is_told_and_no_other(cluster: Site, watched: WatchedLedger, timeline: Timeline, seed: int) -> None:
    launcher = LAUNCHERS[seed % 2]
    job, chance = watched.job, random.Random(seed)
    injector = FaultInjector(cluster, job, chance, verb=lambda *words: call(job.kubectl, *words))
    wrong: list[str] = []
    for incident in order(seed, launcher=launcher):
        watched.begin()
        struck = timeline.mark(incident)
        found = endure(watched, injector.inject(incident), struck)
        print(f"{launcher} seed {seed}: {incident}: {found or 'right'} ({time.time() - struck:.0f} s)")
        wrong += [f"{incident}: {one}" for one in found]
        job.wait_size(SIZE, since=time.time(), within_seconds=180)
        job.wait_steps(20)
    assert not wrong, "\n".join(wrong)


def endure(watched: WatchedLedger, expected: ExpectedRecord, struck: float) -> list[str]:
    """Wait until an incident is told, let the job grow back, and return what is told wrong."""
    if expected.undo:
        watched.wait_for(expected.record)
        expected.undo()
    facts = watched.wait_whole(expected)
    new = watched.new(facts)
    told, found = LedgerRecord.of(new), []
    if told != expected.whole:
        found.append(f"told {told}\nexpected {expected.whole}")
    if expected.survivors not in worlds(new)[:-1]:
        found.append(f"no world of {set(expected.survivors)} in {[set(world) for world in worlds(new)]}")
    story = [(one.about, one.what) for one in tell(facts) if one.unix >= struck - 60]
    found += [
        f"{about}: {part!r} is not in {story}" for about, part in expected.words if not _is_in(story, about, part)
    ]
    status = job_status(facts)
    if (status.state, status.size) != (JobState.TRAINING, SIZE):
        found.append(f"status says {status.state} with {status.size} workers")
    return found + _repeated(watched.job, new, struck)


def _is_in(story: list[tuple[str, str]], about: str, part: str) -> bool:
    return any(who == about and part in what for who, what in story)


def _repeated(job: Job, new: tuple[Entry, ...], struck: float) -> list[str]:
    """Steps that are done again, by the training's own account; the ledger may lack those of the last second."""
    steps = [step["step"] for step in job.account.since(struck - 5).steps]
    truth = sum(max(0, before - after + 1) for before, after in pairwise(steps))
    told = sum(one.repeated_steps for one in new if isinstance(one, WorldChanged))
    return [] if truth - UNSEEN_STEPS <= told <= truth + 1 else [f"{told} repeated steps are told, {truth} were done"]
