"""A cluster's day made up from a seed: the same arguments give the same day, on every machine.

Inference follows the hour of the day, as an autoscaler would, and asks in bursts; some of the nodes are spot, and come
and go. docs/simulate.md says where the figures are from.
"""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush, merge
from typing import Final

from hvd_elastic.decide.simulate.day import Day, InferencePod, NodeLife
from hvd_elastic.decide.simulate.traces.recorded_day import NodeKind, fixed_nodes
from hvd_elastic.mpijob.problems import InvalidInputError
from hvd_elastic.priorityclasses.problem import Problem
from hvd_elastic.system.plain_words import count_words

_HOUR: Final = 3600.0
_FOLLOWS_SECONDS: Final = 300.0
"""How often the autoscaler of inference looks at its load."""
_QUIETEST_HOUR: Final = 4
_BURST_MEDIAN: Final = 6
_BURST_SPREAD: Final = 1.0
"""Of a lognormal distribution: one burst in ten asks for more than 21 pods."""
_BURST_SECONDS: Final = (300.0, 2400.0)
_AROUND_HOURS: Final = (-0.2, 0.0, 1.0)
"""Within these hours of a burst's beginning no hourly pod may be without a GPU: they follow the hour a step late."""
_AWAY_HOURS: Final = 0.5
"""How long a spot node is not to be had, in the mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeUpCluster:
    """What a day is made up for. The day begins at midnight."""

    nodes: int = 8
    spot_nodes: int = 2
    """Of `nodes`. Inference fits on the others."""
    kind: NodeKind = field(default_factory=lambda: NodeKind(gpus=8))
    hours: float = 24.0
    quiet: float = 0.3
    """Share of the GPUs of the nodes that stay that inference has at its quietest hour, 4 o'clock."""
    busy: float = 0.7
    """... and at its busiest, 16 o'clock."""
    bursts: float = 24.0
    """A day, in the mean."""
    spot_hours: float = 8.0
    """Between two losses of a spot node, in the mean."""

    @property
    def fixed_gpus(self) -> int:
        """Of the nodes that stay."""
        return (self.nodes - self.spot_nodes) * self.kind.gpus


def made_up_day(seed: int, cluster: MadeUpCluster) -> Day:
    """The day of a seed. Raises InvalidInputError for a cluster that cannot be."""
    if problems := list(_problems(cluster)):
        raise InvalidInputError(problems)
    nodes, gpus = count_words(cluster.nodes, "node"), count_words(cluster.kind.gpus, "GPU")
    size = f"{nodes} of {gpus}, {cluster.spot_nodes} of them spot"
    return Day(
        source=f"made up from seed {seed}: {size}",
        seconds=cluster.hours * _HOUR,
        nodes=MadeUpNodes(seed=seed, cluster=cluster),
        pods=MadeUpPods(seed=seed, cluster=cluster),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeUpNodes:
    """Those that stay, then a life of each spot node after the other, made up as they are read."""

    seed: int
    cluster: MadeUpCluster

    def __iter__(self) -> Iterator[NodeLife]:
        kind, names = self.cluster.kind, [f"spot-{place}" for place in range(1, self.cluster.spot_nodes + 1)]
        always = NodeKind(gpus=kind.gpus, machine=kind.machine, spot=False)
        yield from fixed_nodes(self.cluster.nodes - self.cluster.spot_nodes, always)
        lives = (_spot_lives(name, self.cluster, _chance(self.seed, name)) for name in names)
        yield from merge(*lives, key=lambda life: life.since)


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeUpPods:
    """Those of the hour and those of bursts, made up as they are read. Those of a day are kept, however many days."""

    seed: int
    cluster: MadeUpCluster

    def __iter__(self) -> Iterator[InferencePod]:
        by_the_hour = _pods_by_the_hour(self.cluster, _chance(self.seed, "hour"))
        in_bursts = _pods_in_bursts(self.cluster, _chance(self.seed, "bursts"))
        return merge(by_the_hour, in_bursts, key=lambda pod: pod.created)


def _chance(seed: int, what: str) -> random.Random:
    """One for each thing that happens, so that they can be read side by side."""
    return random.Random(f"{seed} {what}")  # noqa: S311 - a schedule, not a secret


def inference_share(hour: float, cluster: MadeUpCluster) -> float:
    """The share of the GPUs that stay that inference has at an hour, without bursts: a cosine over the day."""
    rise = (1 - math.cos(2 * math.pi * (hour - _QUIETEST_HOUR) / 24)) / 2
    return cluster.quiet + (cluster.busy - cluster.quiet) * rise


def _problems(cluster: MadeUpCluster) -> Iterator[Problem]:
    if not 0 <= cluster.spot_nodes <= cluster.nodes:
        yield Problem(path="--spot-nodes", value=cluster.spot_nodes, what=f"is more than --nodes: {cluster.nodes}")
    if not 0 <= cluster.quiet <= cluster.busy <= 1:
        yield Problem(
            path="--inference",
            value=f"{cluster.quiet:g}:{cluster.busy:g}",
            what="are not two shares from 0 to 1, the quietest hour's first",
        )


def _pods_by_the_hour(cluster: MadeUpCluster, chance: random.Random) -> Iterator[InferencePod]:
    """As many pods of one GPU as the hour wants. Of those that are there, the youngest goes first.

    One is yielded once its end is known, and after those that came before it. What the quietest hour wants never goes.
    """
    running = [(number, 0.0) for number in range(1, _wanted(0.0, cluster) + 1)]
    stay = _wanted(_QUIETEST_HOUR, cluster)
    yield from (_hourly_pod(number, 0.0) for number, _ in running[:stay])
    ended: list[tuple[int, InferencePod]] = []
    yielded, begun, step = stay, len(running), 1
    while step * _FOLLOWS_SECONDS < cluster.hours * _HOUR:
        wanted = _wanted(step * _FOLLOWS_SECONDS / _HOUR, cluster)
        moments = sorted((step + chance.random()) * _FOLLOWS_SECONDS for _ in range(abs(wanted - len(running))))
        for moment in moments:
            if wanted > len(running):
                begun += 1
                running.append((begun, moment))
            else:
                number, created = running.pop()
                heappush(ended, (number, _hourly_pod(number, created, moment)))
        while ended and ended[0][0] == yielded + 1:
            yield heappop(ended)[1]
            yielded += 1
        step += 1
    left = ((number, _hourly_pod(number, created)) for number, created in running[stay:])
    yield from (pod for _, pod in merge(sorted(ended), left))


def _hourly_pod(number: int, created: float, end: float = float("inf")) -> InferencePod:
    return InferencePod(name=f"hourly-{number}", gpus=1, created=created, seconds=end - created)


def _wanted(hour: float, cluster: MadeUpCluster) -> int:
    return round(inference_share(hour, cluster) * cluster.fixed_gpus)


def _pods_in_bursts(cluster: MadeUpCluster, chance: random.Random) -> Iterator[InferencePod]:
    """Pods of one GPU that are all created in one second. With those of the hour they fit on the nodes that stay."""
    if not cluster.bursts:
        return
    ends: list[float] = []
    moment, number = chance.expovariate(cluster.bursts / 24) * _HOUR, 0
    while moment < cluster.hours * _HOUR:
        ends = [end for end in ends if end > moment]
        by_the_hour = max(_wanted(moment / _HOUR + later, cluster) for later in _AROUND_HOURS)
        room = cluster.fixed_gpus - len(ends) - by_the_hour
        asked = min(room, max(1, round(chance.lognormvariate(math.log(_BURST_MEDIAN), _BURST_SPREAD))))
        number += 1
        for place in range(1, asked + 1):
            seconds = chance.uniform(*_BURST_SECONDS)
            ends.append(moment + seconds)
            yield InferencePod(name=f"burst-{number}-{place}", gpus=1, created=moment, seconds=seconds)
        moment += chance.expovariate(cluster.bursts / 24) * _HOUR


def _spot_lives(name: str, cluster: MadeUpCluster, chance: random.Random) -> Iterator[NodeLife]:
    """A node that is lost and comes again has another name."""
    since, number = 0.0, 1
    while since < cluster.hours * _HOUR:
        until = since + chance.expovariate(1 / cluster.spot_hours) * _HOUR
        yield NodeLife(
            name=f"{name}-{number}",
            gpus=cluster.kind.gpus,
            since=since,
            until=until,
            notice_seconds=cluster.kind.notice_seconds,
            machine=cluster.kind.machine,
        )
        since, number = until + chance.expovariate(1 / _AWAY_HOURS) * _HOUR, number + 1
