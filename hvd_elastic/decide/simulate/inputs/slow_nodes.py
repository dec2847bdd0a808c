"""Nodes that become slow: `fixed-1=2h:1.8` has that node take 1.8 times as long from the second hour on."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hvd_elastic.decide.simulate.day import Day, NodeLife
from hvd_elastic.decide.simulate.time_of_day import seconds_of
from hvd_elastic.mpijob.problems import InvalidInputError
from hvd_elastic.priorityclasses.problem import Problem

_FLAG = "--slow-node"


@dataclass(frozen=True, slots=True, kw_only=True)
class Slowdown:
    """Of one node."""

    since: float
    """Second of the day."""
    times: float
    """Its workers take so many times as long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowedNodes:
    """A day's nodes, of which some become slow."""

    nodes: Iterable[NodeLife]
    slow: Mapping[str, Slowdown]

    def __iter__(self) -> Iterator[NodeLife]:
        for node in self.nodes:
            slow = self.slow.get(node.name)
            yield node if slow is None else replace(node, slow_since=slow.since, slow_times=slow.times)


def with_slow_nodes(day: Day, words: Sequence[str]) -> Day:
    """The day in which the nodes of the words become slow. Raises InvalidInputError with the problems of all words."""
    slow, problems = dict[str, Slowdown](), list[Problem]()
    for word in words:
        name, _, text = word.partition("=")
        try:
            slow[name] = _slowdown(text)
        except ValueError as error:
            problems.append(Problem(path=_FLAG, value=word, what=str(error), way_out="write fixed-1=2h:1.8"))
    unknown = slow.keys() - {node.name for node in day.nodes} if slow else ()
    problems += [Problem(path=_FLAG, value=name, what="is the name of no node of the day") for name in sorted(unknown)]
    if problems:
        raise InvalidInputError(problems)
    return replace(day, nodes=SlowedNodes(nodes=day.nodes, slow=slow)) if slow else day


def _slowdown(text: str) -> Slowdown:
    """Raises ValueError."""
    since, _, times = text.rpartition(":")
    try:
        found = float(times)
    except ValueError:
        found = 0.0
    if not 1 < found < float("inf"):
        raise ValueError("does not say how many times as long its workers take")
    return Slowdown(since=seconds_of(since), times=found)
