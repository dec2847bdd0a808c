"""Checks of the namespace: what the caller may do there, what would cut a job's pods, and its jobs' launchers."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from hvd_elastic.client.doctor.cluster_facts import ClusterFacts, Fact
from hvd_elastic.client.doctor.diagnosis import Verdict, check, error, ok, warning
from hvd_elastic.discovery.kube.conditions import true_condition
from hvd_elastic.mpijob import lint
from hvd_elastic.mpijob.clouds.accelerators import is_accelerator
from hvd_elastic.mpijob.contract import LABEL_PART_OF
from hvd_elastic.mpijob.manifests.supporting import bucket_volume, rbac
from hvd_elastic.priorityclasses import DEFAULTS, Tier
from hvd_elastic.system import quantity
from hvd_elastic.system.plain_words import count_words

_DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"
_OUR_CLASSES: Final = frozenset(one.name for one in DEFAULTS if one.tier is not Tier.INFERENCE)
"""Those of a job's pods. A quota of the class of inference limits no training."""
_UNPICKLING_LAUNCHER: Final = "HE443"
_SHOWN: Final = 5
_NEVER_SET: Final = "limits.cpu"
"""What generated launchers and sidecars do not limit: a namespace that insists on it refuses their pods."""


@check("namespace", Fact.NAMESPACE)
def namespace(facts: ClusterFacts) -> Iterator[Verdict]:
    """Jobs run in a namespace that exists."""
    found = facts.namespace_object
    if found is None:
        yield error(f"there is no namespace {facts.namespace}", f"kubectl create namespace {facts.namespace}")
    elif found["metadata"].get("deletionTimestamp"):
        yield error(f"the namespace {facts.namespace} is being deleted", "choose another with -n")
    else:
        yield ok(facts.namespace)


@check("rights", Fact.RIGHTS)
def rights(facts: ClusterFacts) -> Iterator[Verdict]:
    """Whoever applies a job makes its MPIJob, and a Role that holds no right that he lacks himself."""
    missing = [right for right, allowed in facts.rights.items() if not allowed]
    if not missing:
        yield ok(f"you may do all that applying a job needs in {facts.namespace}")
        return
    rules = ",".join(sorted({f"{right.resource}{'.' + right.group if right.group else ''}" for right in missing}))
    verbs = ",".join(sorted({right.verb for right in missing}))
    yield error(
        f"you may not, in {facts.namespace}: {', '.join(map(str, missing))}",
        f"kubectl -n {facts.namespace} create role hvd-elastic-user --verb={verbs} --resource={rules}"
        f"; kubectl -n {facts.namespace} create rolebinding hvd-elastic-user --role=hvd-elastic-user --user=YOU",
    )


@check("quotas", Fact.QUOTAS)
def quotas(facts: ClusterFacts) -> Iterator[Verdict]:
    """A quota refuses the pods that do not fit into it: a job grows to it and no further."""
    found = False
    for quota in facts.quotas:
        if not _is_ours(quota):
            continue
        name = quota["metadata"]["name"]
        hard, used = quota["spec"].get("hard", {}), quota.get("status", {}).get("used", {})
        full = [key for key in hard if _matters(key) and _left(hard, used, key) <= 0]
        if full:
            found = True
            yield error(
                f"the quota {name} leaves nothing: {', '.join(f'{key} {hard[key]}' for key in full)}",
                f"kubectl -n {facts.namespace} edit resourcequota {name}",
            )
        if _NEVER_SET in hard:
            found = True
            yield error(
                f"the quota {name} refuses pods without {_NEVER_SET}, and launchers have none",
                f"remove {_NEVER_SET} from the quota {name}, or give the namespace a LimitRange with a default",
            )
        if not full and _NEVER_SET not in hard:
            left = ", ".join(f"{key} {_left(hard, used, key):g} of {hard[key]}" for key in hard if _matters(key))
            yield ok(f"{name} leaves {left or 'everything that a job needs'}")
            found = True
    if not found:
        yield ok("none")


def _is_ours(quota: Mapping[str, Any]) -> bool:
    """Whether pods of our classes count in this quota."""
    for expression in quota["spec"].get("scopeSelector", {}).get("matchExpressions", ()):
        if expression["scopeName"] != "PriorityClass":
            continue
        named = set(expression.get("values", ()))
        if expression["operator"] == "In" and not named & _OUR_CLASSES:
            return False
        if expression["operator"] == "NotIn" and named >= _OUR_CLASSES:
            return False
        if expression["operator"] == "DoesNotExist":
            return False
    return True


def _matters(key: str) -> bool:
    wanted = {"pods", "count/pods", "cpu", "memory", "requests.cpu", "requests.memory", "limits.memory"}
    jobs = {"count/mpijobs.kubeflow.org", "count/jobs.batch"}
    return key in wanted | jobs or is_accelerator(key.removeprefix("requests."))


def _left(hard: Mapping[str, str], used: Mapping[str, str], key: str) -> float:
    return float(quantity.parse(str(hard[key])) - quantity.parse(str(used.get(key, "0"))))


@check("limit-ranges", Fact.LIMIT_RANGES)
def limit_ranges(facts: ClusterFacts) -> Iterator[Verdict]:
    """A LimitRange refuses containers above its maximum, and gives those without a limit its default."""
    found = False
    for one in facts.limit_ranges:
        name = one["metadata"]["name"]
        for limit in one["spec"]["limits"]:
            if limit["type"] not in {"Container", "Pod"}:
                continue
            for evidence in _cuts(limit):
                found = True
                yield warning(
                    f"the LimitRange {name} {evidence}", f"kubectl -n {facts.namespace} edit limitrange {name}"
                )
    if not found:
        yield ok("none that cuts a job")


def _cuts(limit: Mapping[str, Any]) -> Iterator[str]:
    highest, default = limit.get("max", {}), limit.get("default", {})
    gpus = [(resource, "1") for resource in highest if is_accelerator(resource)]
    for resource, least in (("cpu", "1"), ("memory", "1Gi"), *gpus):
        if resource in highest and quantity.parse(str(highest[resource])) < quantity.parse(least):
            yield f"allows at most {highest[resource]} {resource}: no worker fits"
    if "cpu" in default and quantity.parse(str(default["cpu"])) < 1:
        yield f"limits launchers to {default['cpu']} CPU, because they set no limit of their own"
    if "cpu" in limit.get("min", {}) and quantity.parse(str(limit["min"]["cpu"])) > quantity.parse("50m"):
        yield f"refuses the discovery sidecar: it asks for 50m CPU, the least is {limit['min']['cpu']}"


@check("storage", Fact.STORAGE_CLASSES)
def storage(facts: ClusterFacts) -> Iterator[Verdict]:
    """A claim that names no class gets the default one."""
    defaults = [
        one["metadata"]["name"]
        for one in facts.storage_classes
        if one["metadata"].get("annotations", {}).get(_DEFAULT_CLASS) == "true"
    ]
    if len(defaults) > 1:
        yield warning(
            f"several default classes: {', '.join(defaults)}; the newest one counts",
            f"kubectl annotate storageclass {defaults[0]} {_DEFAULT_CLASS}-",
        )
    elif defaults:
        yield ok(f"default: {defaults[0]}, of {len(facts.storage_classes)}")
    else:
        classes = count_words(len(facts.storage_classes), "class")
        yield ok(f"{classes}, none the default: name one where a job makes a volume")


@check("buckets", Fact.CSI_DRIVERS)
def buckets(facts: ClusterFacts) -> Iterator[Verdict]:
    """A job's `output` may be a bucket where a driver mounts one."""
    there = {one["metadata"]["name"] for one in facts.csi_drivers}
    found = [name for name in bucket_volume.DRIVERS if name in there]
    yield ok(f"mounted by {', '.join(found)}" if found else "nothing mounts one: `output` is a claim here")


@check("launchers", Fact.MPIJOBS)
def launchers(facts: ClusterFacts) -> Iterator[Verdict]:
    """Another Horovod's `horovodrun` runs what anyone sends to it (CVE-2024-10190). The linter knows which that is."""
    going = [job for job in facts.mpijobs if not _is_over(job)]
    documents, _ = lint.read("\n---\n".join(json.dumps(job) for job in going))
    found = lint.check(documents, lint.select_rules([_UNPICKLING_LAUNCHER])).findings
    names = sorted({finding.job.name for finding in found})
    if names:
        yield warning(
            f"{_some(names)}: {found[0].violation.message}",
            f"hvd-elastic lint --explain {_UNPICKLING_LAUNCHER}",
        )
    else:
        yield ok(f"of {len(going)} jobs none runs a horovodrun that unpickles what it is sent")


@check("left-behind", Fact.MPIJOBS)
def left_behind(facts: ClusterFacts) -> Iterator[Verdict]:
    """A Role and its RoleBinding that were only applied stay when their job is deleted: no token may own them.

    Who may not list them is told so, and no more: no job needs that right.
    """
    if Fact.ROLE_BINDINGS in facts.unreadable:
        yield ok(f"you may not list RoleBindings in {facts.namespace}: those of deleted jobs were not looked for")
        return
    there = {job["metadata"]["name"] for job in facts.mpijobs}
    names = sorted({_job_of_sidecar(binding) for binding in facts.role_bindings} - there - {""})
    if names:
        yield warning(
            f"{_some(names)}: deleted, and the rights of the sidecar are still there",
            f"hvd-elastic delete {' '.join(names[:_SHOWN])} -n {facts.namespace}",
        )
    else:
        yield ok("no rights of a deleted job")


def _job_of_sidecar(binding: Mapping[str, Any]) -> str:
    """Whose sidecar has these rights; empty: no sidecar of an MPIJob v2beta1 has, or they go with what owns them."""
    meta = binding["metadata"]
    job = str(meta["labels"][LABEL_PART_OF])
    accounts = {subject.get("name") for subject in binding.get("subjects") or ()}
    return job if f"{job}{rbac.SUFFIX}" in accounts and not meta.get("ownerReferences") else ""


def _some(names: Sequence[str]) -> str:
    return f"{', '.join(names[:_SHOWN])}{', ...' if len(names) > _SHOWN else ''}"


def _is_over(job: Mapping[str, Any]) -> bool:
    return any(true_condition(job, kind) for kind in ("Succeeded", "Failed"))
