"""Slow workers that were replaced, as a ledger tells of them."""

from collections.abc import Iterable

from hvd_elastic.discovery.ledger.entries import Departure, Entry, WorkerBound, WorkerLeaving
from hvd_elastic.discovery.rules.slow_workers import Replacement


def worker_replacements(entries: Iterable[Entry]) -> tuple[Replacement, ...]:
    """Those of a ledger, oldest first."""
    nodes: dict[str, str] = {}
    found = []
    for entry in entries:
        match entry:
            case WorkerBound():
                nodes[entry.uid] = entry.node
            case WorkerLeaving(why=Departure.SLOW):
                node = nodes.get(entry.uid, "")
                found.append(Replacement(unix=entry.unix, pod=entry.pod, uid=entry.uid, node=node))
    return tuple(found)
