from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.discovery import (
    AtRisk,
    EligibilityRules,
    EligibleHosts,
    Host,
    NodeView,
    PodView,
    Reason,
    WorkerView,
    eligible_hosts,
)
from hvd_elastic.discovery.kube.watch import Changed, Deleted, Listed
from hvd_elastic.discovery.rules.eligibility import EligibilityIndex
from hvd_elastic.discovery.rules.inventory import Inventory
from hvd_elastic.discovery.rules.pod_verdict import Candidate, judge
from hvd_elastic.mpijob.contract import ANNOTATION_LEAVE, WorkerState
from hvd_elastic.policy.allowed_sizes import largest_size
from testbed.kube_api import OWNER, Json, container, node, pod

GOOD = PodView(name="job-worker-0", uid="a", ip="10.0.0.1", owner_uid=OWNER, node="n")
RULES = EligibilityRules(owner_uid=OWNER, slots=2)
WAITS = {"a": WorkerView(generation=4)}
WITHDRAWN = replace(GOOD, ready=False, ready_withdrawn=True)


def decide(*pods: PodView, rules: EligibilityRules = RULES, **given: object) -> EligibleHosts:
    return eligible_hosts(pods, rules, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ready", "containers", "withdrawn"),
    [
        ({"status": "False"}, {"status": "True"}, True),
        ({"status": "True"}, {"status": "True"}, False),
        ({"status": "False", "reason": "ContainersNotReady"}, {"status": "False"}, False),
        ({"status": "False", "reason": "ReadinessGatesNotReady"}, {"status": "True"}, False),
        ({"status": "False"}, {"status": "False"}, False),
        ({}, {}, False),
    ],
)
def test_ready_that_was_taken_away_is_told_from_ready_that_was_lost(
    ready: dict[str, str], containers: dict[str, str], withdrawn: bool
) -> None:
    made = pod(0)
    made["status"]["conditions"] = [{"type": "Ready", **ready}, {"type": "ContainersReady", **containers}]
    view = PodView.from_json(made)
    assert (view.ready_withdrawn, view.ready) == (withdrawn, ready.get("status") == "True")


FIRST = container("worker", "2026-01-01T00:00:01Z")


@pytest.mark.parametrize(
    ("ready", "containers", "starting"),
    [
        ("False", [FIRST], True),
        ("False", [FIRST, container("logs", "2026-01-01T00:00:00Z")], True),
        ("True", [FIRST], False),
        ("False", [], False),
        ("False", [container("worker", "2025-12-31T23:59:59Z")], False),
        ("False", [container("worker", "2026-01-01T00:00:05Z", restarts=1)], False),
        ("False", [FIRST, {"name": "logs", "state": {"waiting": {}}}], False),
        ("False", [{"name": "worker", "state": {"terminated": {"exitCode": 1}}}], False),
    ],
    ids=["first", "with another", "is Ready", "none yet", "was Ready", "started again", "one waits", "ended"],
)
def test_a_pod_starts_until_it_is_ready_for_the_first_time(ready: str, containers: list[Json], starting: bool) -> None:
    made = pod(0, ready=ready == "True")
    made["status"]["containerStatuses"] = containers
    assert PodView.from_json(made).starting is starting


RAN = container("worker", "2025-12-31T23:59:59Z")
"""Began before the pod's last change of Ready."""


@pytest.mark.parametrize(
    ("ready", "containers", "runs_on"),
    [
        ("False", [RAN], True),
        ("False", [container("worker", "2025-12-31T23:59:59Z", restarts=1)], True),
        ("False", [RAN, FIRST], False),
        ("False", [FIRST], False),
        ("True", [RAN], False),
        ("Unknown", [RAN], False),
        ("False", [], False),
        ("False", [RAN, {"name": "logs", "state": {"waiting": {}}}], False),
        ("False", [{"name": "worker", "state": {"terminated": {"exitCode": 1}}}], False),
    ],
    ids=[
        "it runs",
        "since a restart",
        "one is new",
        "all are new",
        "is Ready",
        "unknown",
        "none yet",
        "one waits",
        "ended",
    ],
)
def test_a_pod_whose_containers_run_on_is_told_from_one_that_starts(
    ready: str, containers: list[Json], runs_on: bool
) -> None:
    made = pod(0)
    made["status"]["conditions"] = [
        {"type": "Ready", "status": ready, "reason": "ContainersNotReady", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    ]
    made["status"]["containerStatuses"] = containers
    assert PodView.from_json(made).runs_on is runs_on


def test_a_kubelet_that_starts_anew_takes_no_worker_that_answers() -> None:
    forgotten = replace(GOOD, ready=False, runs_on=True)
    assert decide(forgotten, workers=WAITS).hosts == decide(GOOD, workers=WAITS).hosts
    for worker, reason in ((None, Reason.NOT_ASKED), (WorkerView(silent=True), Reason.NOT_READY)):
        (out,) = decide(forgotten, workers={"a": worker} if worker else {}).left_out
        assert out.reason is reason


def test_a_good_worker_is_offered_by_address_slots_and_alias() -> None:
    (host,) = decide(GOOD, workers=WAITS).hosts
    assert (host.address, host.slots, host.alias, host.pod) == ("10.0.0.1", 2, "a-4", "job-worker-0")


def test_a_worker_with_ipv6_alone_is_offered_by_it() -> None:
    (host,) = decide(replace(GOOD, ip="fd00::1"), workers=WAITS).hosts
    assert (host.address, host.name) == ("fd00::1", "job-worker-0.a")


def test_a_local_host_needs_a_name_a_uid_and_an_address() -> None:
    assert len(eligible_hosts([PodView(name="local-1", uid="1", ip="127.0.0.2")], EligibilityRules()).hosts) == 1


@pytest.mark.parametrize(
    ("changed", "reason", "detail"),
    [
        ({"owner_uid": "another"}, Reason.NOT_OURS, "another"),
        ({"phase": "Failed", "reason": "Evicted"}, Reason.ENDED, "Evicted"),
        ({"phase": "Succeeded"}, Reason.ENDED, "Succeeded"),
        ({"phase": "Pending"}, Reason.PENDING, "Pending"),
        ({"ready": False}, Reason.NOT_READY, ""),
        ({"disruption": "PreemptionByScheduler"}, Reason.DISRUPTED, "PreemptionByScheduler"),
        ({"disruption": "DeletionByTaintManager", "deleting_at": 1.0}, Reason.DISRUPTED, "DeletionByTaintManager"),
        ({"deleting_at": 1.0}, Reason.TERMINATING, ""),
        ({"leave": True}, Reason.LEAVE_ASKED, ""),
        ({"ip": ""}, Reason.NO_ADDRESS, ""),
    ],
)
def test_one_thing_against_a_pod_is_enough(changed: dict[str, object], reason: Reason, detail: str) -> None:
    (out,) = decide(replace(GOOD, **changed), workers=WAITS).left_out  # type: ignore[arg-type]
    assert (out.pod, out.reason, out.detail) == ("job-worker-0", reason, detail)


def test_a_worker_that_answers_is_offered_though_the_node_controller_has_lost_its_node() -> None:
    (host,) = decide(WITHDRAWN, workers=WAITS).hosts
    assert host.pod == "job-worker-0"


def test_a_worker_that_starts_is_offered_once_it_answers() -> None:
    starting = replace(GOOD, ready=False, starting=True)
    assert decide(starting, workers=WAITS).hosts
    for workers in ({}, {"a": WorkerView(silent=True)}, None):
        (out,) = decide(starting, workers=workers).left_out
        assert out.reason is Reason.NOT_READY


@pytest.mark.parametrize("workers", [{"a": WorkerView(generation=4, silent=True)}, None], ids=["silent", "not asked"])
def test_one_that_does_not_answer_is_believed_lost_with_its_node(workers: dict[str, WorkerView] | None) -> None:
    (out,) = decide(WITHDRAWN, workers=workers).left_out
    assert (out.reason, out.detail) == (Reason.NOT_READY, "its node is not Ready, and it does not answer")


@pytest.mark.parametrize(
    ("worker", "reason"),
    [
        (None, Reason.NOT_ASKED),
        (WorkerView(lost=True), Reason.UNREACHABLE),
        (WorkerView(state=WorkerState.LEAVING), Reason.LEAVING),
    ],
)
def test_a_worker_speaks_for_itself(worker: WorkerView | None, reason: Reason) -> None:
    (out,) = decide(GOOD, workers={"a": worker} if worker else {}).left_out
    assert out.reason is reason


def test_quarantine_and_victims_are_out() -> None:
    assert decide(GOOD, workers=WAITS, quarantine={"a"}).left_out[0].reason is Reason.QUARANTINED
    assert decide(GOOD, rules=replace(RULES, victims=frozenset({"a"}))).left_out[0].reason is Reason.SCALED_DOWN


def test_reads_a_pod_as_the_api_server_sends_it() -> None:
    view = PodView.from_json(pod(3, disrupted="EvictionByEvictionAPI", deleting="2026-01-01T00:01:00Z"))
    assert (view.name, view.uid, view.ip, view.index) == ("job-worker-3", "uid-job-3", "127.0.1.4", 3)
    assert (view.disruption, view.deleting_at, view.owner_uid) == ("EvictionByEvictionAPI", 1767225660.0, OWNER)
    stale = pod(0)
    stale["status"]["conditions"].append({"type": "DisruptionTarget", "status": "False", "reason": "old"})
    assert PodView.from_json(stale).disruption == ""
    asked = [PodView.from_json(pod(0, annotations={ANNOTATION_LEAVE: value})).leave for value in ("true", "", "false")]
    assert asked == [True, True, False]


def test_a_pod_of_which_nothing_is_known_is_not_fine() -> None:
    bare = {"metadata": {"name": "job-worker-0", "uid": "a"}}
    assert decide(PodView.from_json(bare), rules=EligibilityRules()).hosts == ()


def test_keeps_how_a_failed_worker_ended() -> None:
    failed = pod(0, phase="Failed", reason="Evicted")
    failed["status"]["message"] = "low on memory"
    failed["status"]["containerStatuses"] = [
        {"name": "worker", "state": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}
    ]
    assert PodView.from_json(failed).last_state == "low on memory; worker: OOMKilled, exit code 137"


@pytest.mark.parametrize(
    "taint",
    [
        "aws-node-termination-handler/spot-itn",
        "aws-node-termination-handler/scheduled-maintenance",
        "aws-node-termination-handler/asg-lifecycle-termination",
        "karpenter.sh/disrupted",
        "ToBeDeletedByClusterAutoscaler",
        "cloud.google.com/impending-node-termination",
        "remediator.kubernetes.azure.com/unschedulable",
        "aks-node-termination-handler/preempt",
    ],
)
def test_a_draining_node_is_left_at_once_even_below_min(taint: str) -> None:
    nodes = {"n": NodeView.from_json(node("n", taints=("some/other", taint)))}
    (out,) = decide(GOOD, workers=WAITS, nodes=nodes).left_out
    assert (out.reason, out.detail) == (Reason.NODE_DRAINING, taint)


def test_a_machine_that_shuts_down_is_left_at_once() -> None:
    """A spot machine of GKE: nobody puts a taint on its node in time, but its kubelet says so before it ends a pod."""
    going = node("n", ready=False)
    # As kubelet 1.34 writes it when its shutdown manager has heard of the shutdown.
    going["status"]["conditions"][0] |= {"reason": "KubeletNotReady", "message": "node is shutting down"}
    (out,) = decide(GOOD, workers=WAITS, nodes={"n": NodeView.from_json(going)}).left_out
    assert (out.reason, out.detail) == (Reason.NODE_DRAINING, "node is shutting down")
    busy = node("n", ready=False)
    busy["status"]["conditions"][0] |= {"reason": "KubeletNotReady", "message": "PLEG is not healthy"}
    assert not decide(GOOD, workers=WAITS, nodes={"n": NodeView.from_json(busy)}).left_out
    back = node("n")
    back["status"]["conditions"][0] |= {"reason": "KubeletReady", "message": "kubelet is posting ready status"}
    assert not decide(GOOD, workers=WAITS, nodes={"n": NodeView.from_json(back)}).left_out


@pytest.mark.parametrize("listed", [False, True])
def test_what_a_node_had_announced_holds_when_it_is_deleted_under_its_pod(listed: bool) -> None:
    """Its pod stays Running and Ready for a minute: the pods' garbage collector waits, and no kubelet is left."""
    inventory = Inventory(RULES)
    inventory.update_pods(Listed((GOOD,)))
    inventory.update_workers(WAITS)
    inventory.update_nodes(Listed((NodeView(name="n"), NodeView(name="other"))))
    assert inventory.eligible_hosts().hosts
    inventory.update_nodes(Listed((NodeView(name="other"),)) if listed else Deleted(NodeView(name="n")))
    (out,) = inventory.eligible_hosts().left_out
    assert (out.reason, out.detail) == (Reason.NODE_DRAINING, "node was deleted")
    inventory.update_nodes(Changed(NodeView(name="n")))
    assert inventory.eligible_hosts().hosts, "a kubelet that was only restarted has registered it again"


@pytest.mark.parametrize(
    ("policy", "min_workers", "offered"),
    [(AtRisk.KEEP, 1, 2), (AtRisk.SPARE, 1, 1), (AtRisk.SPARE, 2, 2), (AtRisk.OMIT, 2, 1)],
)
def test_a_cordoned_node_is_left_as_the_policy_says(policy: AtRisk, min_workers: int, offered: int) -> None:
    other = replace(GOOD, name="job-worker-1", uid="b", ip="10.0.0.2", node="cordoned")
    rules = replace(RULES, at_risk=policy, min_workers=min_workers)
    nodes = {"n": NodeView(name="n"), "cordoned": NodeView.from_json(node("cordoned", cordoned=True))}
    answer = decide(GOOD, other, rules=rules, nodes=nodes)
    assert len(answer.hosts) == offered
    assert answer.at_risk == (("job-worker-1",) if offered == 2 else ())


def test_the_order_is_on_demand_first_then_longest_ready() -> None:
    spot = NodeView.from_json(node("spot", labels={"karpenter.sh/capacity-type": "spot"}))
    pods = [
        replace(GOOD, name=f"job-worker-{i}", uid=str(i), ip=f"10.0.0.{i}", node=on, ready_since=since)
        for i, on, since in ((0, "spot", 1.0), (1, "n", 9.0), (2, "n", 5.0), (3, "spot", 0.5))
    ]
    answer = decide(*pods, nodes={"spot": spot, "n": NodeView(name="n")})
    assert [host.pod[-1] for host in answer.hosts] == ["2", "1", "3", "0"]


def test_pods_of_one_name_and_age_have_an_order_too() -> None:
    """A ghost and its heir, with times of whole seconds."""
    twins = [replace(GOOD, uid=uid, ip=ip) for uid, ip in (("b", "10.0.0.2"), ("a", "10.0.0.3"))]
    assert decide(*twins) == decide(*reversed(twins))


def test_an_address_stands_for_the_younger_of_two_pods() -> None:
    ghost, heir = replace(GOOD, created=1.0), replace(GOOD, name="job-worker-1", uid="b", created=2.0)
    answer = decide(heir, ghost)
    assert [host.uid for host in answer.hosts] == ["b"]
    assert (answer.left_out[0].pod, answer.left_out[0].reason) == ("job-worker-0", Reason.ADDRESS_TAKEN)


def test_short_counts_workers() -> None:
    assert decide(GOOD).is_short(replace(RULES, min_workers=2))
    assert not decide(GOOD).is_short(RULES)


PODS = st.builds(
    PodView,
    name=st.integers(0, 6).map("job-worker-{}".format),
    uid=st.uuids().map(str),
    ip=st.integers(1, 6).map("10.0.0.{}".format),
    ready=st.booleans(),
    ready_since=st.integers(0, 3).map(float),
    created=st.integers(0, 3).map(float),
    disruption=st.sampled_from(["", "", "x"]),
    node=st.sampled_from(["a", "b", "c"]),
)
NODES = {
    "a": NodeView(name="a", spot=True),
    "b": NodeView(name="b", at_risk="cordoned"),
    "c": NodeView(name="c", draining="x"),
}


@given(pods=st.lists(PODS, max_size=12), data=st.data(), min_workers=st.integers(1, 4))
def test_the_answer_is_of_the_values_alone_and_accounts_for_every_pod(
    pods: list[PodView], data: st.DataObject, min_workers: int
) -> None:
    rules = EligibilityRules(min_workers=min_workers)
    answer = eligible_hosts(pods, rules, nodes=NODES)
    assert answer == eligible_hosts(data.draw(st.permutations(pods)), rules, nodes=NODES)
    assert len(answer.hosts) + len(answer.left_out) == len(pods)
    assert len({host.address for host in answer.hosts}) == len(answer.hosts)


@given(pods=st.lists(PODS, max_size=12), drops=st.lists(st.integers(0, 11)), min_workers=st.integers(1, 4))
def test_an_index_kept_over_changes_decides_as_a_fresh_one(
    pods: list[PodView], drops: list[int], min_workers: int
) -> None:
    rules, index = EligibilityRules(min_workers=min_workers), EligibilityIndex()
    kept = {view.uid: view for view in pods}
    for view in pods:
        index.put(view.uid, judge(replace(view, ready=not view.ready), rules, NODES[view.node], WorkerView()))
        index.put(view.uid, judge(view, rules, NODES[view.node], WorkerView()))
    for place in drops:
        if place < len(pods):
            index.remove(pods[place].uid)
            kept.pop(pods[place].uid, None)
    eligible = index.eligible_hosts(rules)
    assert eligible == eligible_hosts(kept.values(), rules, nodes=NODES)
    assert index.lines() in {None, b"".join(host.line for host in eligible.hosts)}


@given(rounds=st.lists(st.lists(PODS, max_size=5), max_size=5), min_workers=st.integers(1, 3))
def test_the_changed_hosts_are_what_has_changed_since_the_mark(rounds: list[list[PodView]], min_workers: int) -> None:
    rules, index = EligibilityRules(min_workers=min_workers), EligibilityIndex()
    marked: dict[str, Host] = {}
    for views in rounds:
        for view in views:
            uid = view.name  # few, so that pods change
            index.put(uid, judge(replace(view, uid=uid), rules, NODES[view.node], WorkerView()))
        eligible = index.eligible_hosts(rules)
        now = {host.uid: host for host in eligible.hosts}
        changed = index.changed_hosts()
        if changed is not None:
            assert {uid: host for uid, host in (marked | dict(changed)).items() if host} == now
        index.mark()
        marked = now


def test_changed_hosts_and_lines_are_known_where_every_candidate_is_offered() -> None:
    index = EligibilityIndex()
    index.put("a", judge(GOOD, RULES, None, WorkerView()))
    (host,) = index.eligible_hosts(RULES).hosts
    assert (index.changed_hosts(), index.lines()) == (None, host.line)
    index.mark()
    index.eligible_hosts(RULES)
    assert index.changed_hosts() == {}
    index.put("a", judge(replace(GOOD, ready=False), RULES, None, WorkerView()))
    index.eligible_hosts(RULES)
    assert (index.changed_hosts(), index.lines()) == ({"a": None}, b"")


UIDS = st.sampled_from("abcdef")
STEPS = st.one_of(
    st.tuples(st.just("pod"), st.builds(lambda uid, view: replace(view, uid=uid), UIDS, PODS)),
    st.tuples(st.just("delete"), UIDS),
    st.tuples(st.just("list"), st.none()),
    st.tuples(st.just("node"), st.sampled_from([*NODES.values(), NodeView(name="a"), NodeView(name="b")])),
    st.tuples(st.just("worker"), st.tuples(UIDS, st.builds(WorkerView, lost=st.booleans()))),
    st.tuples(st.just("victims"), st.frozensets(UIDS)),
)


@given(steps=st.lists(STEPS, max_size=30), quarantines=st.lists(st.frozensets(UIDS), min_size=1, max_size=4))
def test_the_sidecar_decides_as_the_pure_function(
    steps: list[tuple[str, Any]], quarantines: list[frozenset[str]]
) -> None:
    inventory = Inventory(EligibilityRules(min_workers=2))
    for number, (kind, what) in enumerate(steps):
        match kind:
            case "pod":
                inventory.update_pods(Changed(what))
            case "delete" if what in inventory.pods:
                inventory.update_pods(Deleted(inventory.pods[what]))
            case "list":
                inventory.update_pods(Listed(tuple(inventory.pods.values())))
            case "node":
                inventory.update_nodes(Changed(what))
            case "worker":
                inventory.update_workers(dict([what]))
            case "victims":
                inventory.update_victims(what)
        quarantine = quarantines[number % len(quarantines)]
        expected = eligible_hosts(
            inventory.pods.values(),
            inventory.rules,
            nodes=inventory.nodes,
            workers=inventory.workers,
            quarantine=quarantine,
        )
        assert inventory.eligible_hosts(quarantine) == expected


def test_why_a_worker_that_is_spared_was_left_out() -> None:
    inventory = Inventory(EligibilityRules(min_workers=0))
    inventory.update_pods(Listed((GOOD,)))
    inventory.update_workers(WAITS)
    (host,) = inventory.eligible_hosts().hosts
    inventory.update_nodes(Listed((NodeView(name="n", at_risk="VMEventScheduled"),)))
    assert not inventory.eligible_hosts().hosts
    assert inventory.why_left_out(host) == "node-at-risk: VMEventScheduled"


def test_of_workers_that_no_allowed_size_needs_those_stay_that_are_on_the_list() -> None:
    """Whoever is likelier to survive: a change of members costs a resize."""
    inventory = Inventory(EligibilityRules(sizes=(1, 2, 4)))
    views = [replace(GOOD, uid=uid, name=uid, ip=f"10.0.0.{n}", ready_since=9.0 - n) for n, uid in enumerate("abc")]
    inventory.update_workers({})
    inventory.update_pods(Listed((*views[:2],)))
    inventory.update_workers(dict.fromkeys("ab", WorkerView()))
    assert [host.uid for host in inventory.eligible_hosts().hosts] == ["b", "a"]
    inventory.update_pods(Changed(views[2]))
    inventory.update_workers({"c": WorkerView()})
    assert [host.uid for host in inventory.eligible_hosts().hosts] == ["c", "b"]
    found = inventory.eligible_hosts(offered={"a", "b"})
    assert [host.uid for host in found.hosts] == ["b", "a"]
    assert [(out.pod, out.reason) for out in found.left_out] == [("c", Reason.SURPLUS)]
    surplus = inventory.index.verdict("c")
    assert isinstance(surplus, Candidate)
    assert inventory.why_left_out(surplus.host) == "surplus"


@given(pods=st.lists(PODS, max_size=12), sizes=st.sets(st.integers(1, 9), max_size=4), before=st.integers(0, 2**12))
def test_an_allowed_number_is_offered_and_too_few_are_offered_all(
    pods: list[PodView], sizes: set[int], before: int
) -> None:
    offered = {view.uid for number, view in enumerate(pods) if before >> number & 1}
    free = eligible_hosts(pods, EligibilityRules(), nodes=NODES)
    cut = eligible_hosts(pods, EligibilityRules(sizes=tuple(sizes)), nodes=NODES, offered=offered)
    assert len(cut.hosts) == largest_size(sizes, len(free.hosts))
    assert [host for host in free.hosts if host in cut.hosts] == list(cut.hosts), "in the order of ranks"
    assert len(cut.hosts) + len(cut.left_out) == len(pods)
    left = {host.uid for host in free.hosts} - {host.uid for host in cut.hosts}
    assert not left & offered or {host.uid for host in cut.hosts} <= offered
