"""Checks of what keeps the first workers of a job (`workers.floor`): a class, the policy that gives it, their nodes."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from hvd_elastic.client.doctor.checks.node_checks import is_spot
from hvd_elastic.client.doctor.cluster_facts import ClusterFacts, Fact
from hvd_elastic.client.doctor.diagnosis import Verdict, check, error, ok, warning
from hvd_elastic.discovery.rules.cluster_views import PodView
from hvd_elastic.mpijob.contract import LABEL_FLOOR
from hvd_elastic.priorityclasses import DEFAULTS, PreemptionPolicy, Tier

_KIT: Final = "hvd-elastic platform-kit kit --with floor; kubectl apply --server-side -k kit"
_CLASSES: Final = {one.tier: one for one in DEFAULTS}


@check("floor", Fact.PRIORITY_CLASSES, Fact.POLICIES, Fact.MPIJOBS, Fact.WORKERS, Fact.NODES)
def floor(facts: ClusterFacts) -> Iterator[Verdict]:
    """What `workers.floor` promises: inference cannot preempt these workers."""
    policy = next(filter(_gives_floors, facts.mutating_policies or ()), None)
    asking = [job["metadata"]["name"] for job in facts.mpijobs if _asks(job)]
    if not asking and policy is None:
        yield ok("no job asks for one, and nothing here would give it")
        return
    if policy is None:
        yield _without_policy(asking, facts)
        return
    amiss = [*_unbound(policy, facts), *_class(facts), *_unraised(facts), *_on_spot(facts)]
    yield from amiss
    if not amiss:
        yield ok(f"the MutatingAdmissionPolicy {policy['metadata']['name']} gives it")


def _gives_floors(policy: Mapping[str, Any]) -> bool:
    constraints = policy["spec"].get("matchConstraints") or {}
    selected = (constraints.get("objectSelector") or {}).get("matchExpressions") or ()
    return any(one.get("key") == LABEL_FLOOR for one in selected)


def _asks(job: Mapping[str, Any]) -> bool:
    template = job["spec"]["mpiReplicaSpecs"].get("Worker", {}).get("template") or {}
    return LABEL_FLOOR in ((template.get("metadata") or {}).get("labels") or {})


def _without_policy(asking: list[str], facts: ClusterFacts) -> Verdict:
    who = ", ".join(asking)
    what = f"{who}: nothing keeps the workers of workers.floor, inference may take them"
    if facts.mutating_policies is None:
        return error(
            f"{what}: Kubernetes {facts.version} serves no MutatingAdmissionPolicies of v1",
            "they are on by default from 1.36 on: upgrade it or turn them on, or leave workers.floor out",
        )
    return error(f"{what}: there is no policy that gives it", _KIT)


def _unbound(policy: Mapping[str, Any], facts: ClusterFacts) -> Iterator[Verdict]:
    name = policy["metadata"]["name"]
    if all(binding["spec"].get("policyName") != name for binding in facts.mutating_bindings):
        yield error(f"the MutatingAdmissionPolicy {name} has no binding, so it raises no pod", _KIT)


def _class(facts: ClusterFacts) -> Iterator[Verdict]:
    ours, inference = _found(facts, Tier.FLOOR), _found(facts, Tier.INFERENCE)
    name = _CLASSES[Tier.FLOOR].name
    if ours is None:
        yield error(f"{name} does not exist: pods of a floor are refused", _KIT)
        return
    if inference is not None and int(ours["value"]) != int(inference["value"]):
        what = (
            "inference preempts its pods" if int(ours["value"]) < int(inference["value"]) else "it is above inference"
        )
        yield error(
            f"{name} is {ours['value']}, not the {inference['value']} of {inference['metadata']['name']}: {what}",
            "hvd-elastic priorityclasses | kubectl replace --force -f -",
        )
    if ours.get("preemptionPolicy") != PreemptionPolicy.NEVER:
        yield warning(
            f"pods of {name} preempt pods below them: training takes GPUs from others",
            "hvd-elastic priorityclasses | kubectl replace --force -f -",
        )


def _found(facts: ClusterFacts, tier: Tier) -> Mapping[str, Any] | None:
    return next((one for one in facts.priority_classes if one["metadata"]["name"] == _CLASSES[tier].name), None)


def _below_floor(facts: ClusterFacts) -> Iterator[Mapping[str, Any]]:
    for pod in facts.workers:
        index, said = PodView.from_json(pod).index, str((pod["metadata"].get("labels") or {}).get(LABEL_FLOOR, ""))
        if index is not None and said.isdecimal() and said.isascii() and index < int(said[:9]):
            yield pod


def _unraised(facts: ClusterFacts) -> Iterator[Verdict]:
    """A pod that is older than the policy keeps the class that it has."""
    inference = _found(facts, Tier.INFERENCE)
    lowest = int(inference["value"]) if inference else _CLASSES[Tier.INFERENCE].value
    low = [pod["metadata"]["name"] for pod in _below_floor(facts) if int(pod["spec"].get("priority") or 0) < lowest]
    if low:
        yield warning(
            f"{', '.join(low)}: below the floor of the job, and of a class that inference preempts",
            f"kubectl -n {facts.namespace} delete pod {low[0]}: the next one has the class, if the policy is older",
        )


def _on_spot(facts: ClusterFacts) -> Iterator[Verdict]:
    spot = {node["metadata"]["name"] for node in facts.nodes if is_spot(node)}
    found = [pod["metadata"]["name"] for pod in _below_floor(facts) if pod["spec"].get("nodeName") in spot]
    if found:
        yield warning(
            f"{', '.join(found)}: below the floor of the job, and on a spot node: the cloud may take it all the same",
            "capacity: on-demand, or a floor that may be lost",
        )
