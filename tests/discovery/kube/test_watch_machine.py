"""Whatever happens on the wire, the decision becomes the one that a fresh list gives."""

import random
import threading
from collections.abc import Iterator

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from hvd_elastic.discovery.kube.api_server import ApiServer
from hvd_elastic.discovery.kube.mpijob_place import MPIJobPlace
from hvd_elastic.discovery.kube.watch import Watch, workers_of
from hvd_elastic.discovery.rules.cluster_views import PodView, WorkerView
from hvd_elastic.discovery.rules.eligibility import eligible_hosts
from hvd_elastic.discovery.rules.inventory import Inventory
from hvd_elastic.discovery.rules.pod_verdict import EligibilityRules
from hvd_elastic.mpijob.contract import WorkerState
from testbed.kube_api import OWNER, PODS, Cut, KubeApi, pod
from tests.discovery.conftest import until
from tests.properties import examples

PLACE = MPIJobPlace(job="job", namespace="default", version="v2beta1")
INDEXES = st.integers(0, 4)
RULES = EligibilityRules(owner_uid=OWNER, min_workers=2)


class Wire(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.api = KubeApi(chop=self.chop)
        self.inventory = Inventory(RULES)
        self.lock = threading.Lock()
        self.workers: dict[str, WorkerView] = {}
        self.made = self.cuts = 0
        self.watch = Watch(
            server=ApiServer(self.api.access()),
            selection=workers_of(PLACE, PodView.from_json),
            server_seconds=1,
            random=lambda: 0.0,
        )
        self.thread = threading.Thread(target=self.follow, daemon=True)
        self.thread.start()

    def chop(self, line: bytes) -> Iterator[bytes]:
        """Any chunking; now and then the connection is cut in the middle of a line."""
        place = 0
        cut = self.cuts > 0 and self.dice.randrange(len(line))
        while place < len(line):
            size = self.dice.choice((1, 7, 100, len(line)))
            yield line[place : place + size]
            place += size
            if cut and place > cut:
                self.cuts -= 1
                raise Cut

    def follow(self) -> None:
        for messages in self.watch.forever():
            with self.lock:
                for message in messages:
                    self.inventory.update_pods(message)
                self.inventory.update_workers(self.workers)

    @rule(index=INDEXES, ready=st.booleans(), disrupted=st.booleans(), shared=st.booleans(), fresh=st.booleans())
    def put(self, index: int, ready: bool, disrupted: bool, shared: bool, fresh: bool) -> None:
        self.made += 1
        known = self.api.objects[PODS].get(f"job-worker-{index}")
        if known and fresh:
            self.api.remove(PODS, f"job-worker-{index}")
        uid = known["metadata"]["uid"] if known and not fresh else f"uid-{self.made}"
        made = pod(
            index,
            uid=uid,
            ready=ready,
            disrupted="EvictionByEvictionAPI" if disrupted else "",
            ip="10.0.0.1" if shared else None,
            since=f"2026-01-01T00:00:{self.made % 60:02}Z",
            owner=OWNER if self.made % 5 else "another",
        )
        self.api.put(PODS, made)
        if self.made % 7:
            with self.lock:
                self.workers[uid] = WorkerView(generation=self.made, state=WorkerState.TRAINING)
                self.inventory.update_workers(self.workers)

    @rule(index=INDEXES)
    def remove(self, index: int) -> None:
        self.api.remove(PODS, f"job-worker-{index}")

    @rule()
    def bookmark(self) -> None:
        self.api.bookmark()

    @rule(place=st.integers(0, 100))
    def replay(self, place: int) -> None:
        self.api.replay(place)

    @rule()
    def forget(self) -> None:
        self.api.compact()
        self.api.cut()

    @rule()
    def cut(self) -> None:
        self.cuts += 1

    def teardown(self) -> None:
        if not hasattr(self, "api"):
            return
        try:
            self.cuts = 0
            for place in reversed(range(len(self.api.history))):
                self.api.replay(place)
            self.api.bookmark()
            until(lambda: self.watch._version == str(self.api.version) and self.is_right())
        finally:
            self.watch.stopped.set()
            self.api.stop()
            self.thread.join(10)

    def is_right(self) -> bool:
        fresh = [PodView.from_json(thing) for thing in self.api.objects[PODS].values()]
        with self.lock:
            known = {view.uid: view for view in fresh}
            answers = {uid: view for uid, view in self.workers.items() if uid in known}
            answer = eligible_hosts(fresh, RULES, workers=answers)
            blocking = {view for view in fresh if view.may_block}
            return (
                self.inventory.pods == known
                and self.inventory.eligible_hosts() == answer
                and set(self.inventory.blocking_pods()) == blocking
            )


TestWire = Wire.TestCase
TestWire.settings = settings(max_examples=examples(20), stateful_step_count=20, suppress_health_check=list(HealthCheck))
