"""Nodes that the workers to come of a job keep off: how an MPIJob says it, and what its pod template has for it.

The template speaks for pods to come alone. The MPI Operator makes each worker's pod from the MPIJob as it is then, and
compares no pod with it afterwards: it asks only whether there is one of the name, and whose it is (mpi-operator 0.8.2,
0.7.0 and 0.6.0, `pkg/controller/mpi_job_controller.go`: `newWorker` copies the template, `getOrCreateWorker` calls it
where there is no pod). Kueue compares containers and tolerations with what it has admitted, not the affinity (Kueue
0.19, `pkg/util/equality/podset.go`, `comparePodTemplate`).
"""

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from hvd_elastic.mpijob.contract import ANNOTATION_EXCLUDED_NODES
from hvd_elastic.system.untrusted_values import END_OF_DATES

Json = Mapping[str, Any]

HOSTNAME: Final = "kubernetes.io/hostname"
MOST_NODES: Final = 2
"""Of one job at a time. One that finds more of them slow has another trouble than its nodes."""
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_NODE: Final = re.compile(r"[a-z0-9]([-.a-z0-9]{0,61}[a-z0-9])?")
"""The name of a node that can be the value of its label HOSTNAME."""


def excluded_nodes(job: Json) -> dict[str, float]:
    """What an MPIJob's annotation says: node to Unix seconds. What cannot be read is left out, and all beyond
    MOST_NODES.
    """
    found = {}
    text = str((job["metadata"].get("annotations") or {}).get(ANNOTATION_EXCLUDED_NODES) or "")
    for one in text.split(",", MOST_NODES)[:MOST_NODES]:
        node, _, time = one.partition("=")
        if _NODE.fullmatch(node) and (until := _unix_seconds(time)) is not None:
            found[node] = until
    return found


def exclusion_text(nodes: Mapping[str, float]) -> str:
    """The annotation for these nodes: `node-7=2026-11-30T14:05:00+00:00`."""
    return ",".join(f"{node}={datetime.fromtimestamp(nodes[node], UTC).isoformat('T', 'seconds')}" for node in nodes)


def excluding(affinity: Json, nodes: Collection[str], *, in_place_of: Collection[str] = ()) -> dict[str, Any]:
    """A template's affinity with these nodes excluded, and the others no more. Empty: it has none.

    Of the required terms one must match, so the exclusion stands in each. One without requirements matches no node, and
    stays as it is.
    """
    node_affinity = dict(affinity.get("nodeAffinity") or {})
    terms = (node_affinity.pop(REQUIRED, None) or {}).get("nodeSelectorTerms") or ()
    if changed := _added(_taken_out(terms, in_place_of), nodes):
        node_affinity[REQUIRED] = {"nodeSelectorTerms": changed}
    others = {kind: rules for kind, rules in affinity.items() if kind != "nodeAffinity"}
    return {**others, **({"nodeAffinity": node_affinity} if node_affinity else {})}


def _added(terms: list[Json], nodes: Collection[str]) -> list[Json]:
    if not nodes:
        return terms
    ours = _requirement(nodes)
    if not terms:
        return [{"matchExpressions": [ours]}]
    return [_with(term, [*_expressions(term), ours]) if any(term.values()) else term for term in terms]


def _taken_out(terms: Sequence[Json], nodes: Collection[str]) -> list[Json]:
    """The terms as they were. The only one, if it says nothing else, came with the exclusion."""
    ours = _requirement(nodes)
    if list(terms) == [{"matchExpressions": [ours]}]:
        return []
    return [_with(term, [one for one in _expressions(term) if one != ours]) for term in terms]


def _with(term: Json, expressions: list[Json]) -> Json:
    if expressions == _expressions(term):
        return term
    others = {key: value for key, value in term.items() if key != "matchExpressions"}
    return {**({"matchExpressions": expressions} if expressions else {}), **others}


def _expressions(term: Json) -> list[Json]:
    return list(term.get("matchExpressions") or ())


def _requirement(nodes: Collection[str]) -> Json:
    return {"key": HOSTNAME, "operator": "NotIn", "values": [*nodes]}


def _unix_seconds(time: str) -> float | None:
    try:
        seconds = datetime.fromisoformat(time).timestamp()
    except (OverflowError, ValueError):
        return None
    return seconds if 0 <= seconds < END_OF_DATES else None
