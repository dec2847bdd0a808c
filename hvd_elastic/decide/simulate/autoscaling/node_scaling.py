"""Which nodes a cluster autoscaler buys and takes away: pure decisions."""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import islice

from hvd_elastic.decide.simulate.day import NodeGroup


def nodes_to_add(waiting: Mapping[int, int], group: NodeGroup, *, coming: int, there: int) -> int:
    """How many to call for. `waiting`: how many pods without room ask for so many GPUs each.

    Pods fill the nodes that are `coming` first. `there`: nodes of the group that pods may be bound to.
    """
    return max(0, min(_filled(waiting, group) - coming, group.most - coming - there))


def _filled(waiting: Mapping[int, int], group: NodeGroup) -> int:
    """Nodes that the pods fill, the largest pod first, as far as the group has nodes."""
    free, nodes = Counter[int](), 0  # nodes by the GPUs that are free on them
    for gpus in sorted((gpus for gpus in waiting if 0 < gpus <= group.gpus), reverse=True):
        for _ in range(waiting[gpus]):
            room = min((room for room, count in free.items() if count and room >= gpus), default=0)
            if room:
                free[room] -= 1
            elif nodes < group.most:
                nodes, room = nodes + 1, group.gpus
            else:
                break
            free[room - gpus] += 1
    return nodes


def unneeded_nodes(empty: Iterable[int], before: Mapping[int, float], most: int, now: float) -> dict[int, float]:
    """Of the nodes that nobody is on, those that are unneeded, and since when each is.

    `before`: the same at the last look. `most`: so many may go, and the chunks of a buffer still have room.
    """
    return {node: before.get(node, now) for node in islice(empty, most)}
