"""What a file of recorded traces is read into."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from hvd_elastic.decide.simulate.day import InferencePod


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePresence:
    """One node, from when it was there until it was gone, in seconds of the trace."""

    name: str
    since: float
    until: float = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTrace:
    """One trace of a file: of nodes or of inference pods."""

    name: str
    seconds: float
    """How long it is."""
    nodes: tuple[NodePresence, ...] = ()
    """In the order in which they came."""
    pods: tuple[InferencePod, ...] = ()
    """In the order in which they were created."""

    @property
    def is_of_nodes(self) -> bool:
        """A trace of pods says nothing about nodes, and the other way round."""
        return not self.pods


def node_count_trace(name: str, counts: Sequence[tuple[float, int]]) -> RecordedTrace:
    """A trace of nodes from how many there were from a second on. The last second says how long it is.

    Which node goes when there are fewer is not known. One is drawn, always the same for the same trace.
    """
    chance = random.Random(name)  # noqa: S311 - which node goes, not a secret
    began: dict[str, float] = {}
    ended: dict[str, float] = {}
    there: list[str] = []
    for second, count in counts:
        while len(there) < count:
            node = f"node-{len(began) + 1}"
            there.append(node)
            began[node] = second
        while len(there) > count:
            ended[there.pop(chance.randrange(len(there)))] = second
    nodes = (NodePresence(name=node, since=since, until=ended.get(node, float("inf"))) for node, since in began.items())
    return RecordedTrace(name=name, seconds=counts[-1][0], nodes=tuple(nodes))
