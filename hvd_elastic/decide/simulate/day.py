"""A cluster's day as values: which nodes are there when, and which inference pods ask for GPUs when.

Seconds count from the beginning of the day. Readers of recorded traces and of nodes and pods made up from a seed all
give this; the simulation takes nothing else of the outside.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

NODE_START_SECONDS: Final = 210.0
"""From the call for a node until pods are bound to it. Cluster Autoscaler's FAQ: "on GCE it usually takes 3 to 4
minutes from CA request to when pods can be scheduled" (kubernetes/autoscaler, cluster-autoscaler/FAQ.md). Its own 10
to 30 s, and the driver of a GPU, are left out.
"""
NODE_UNNEEDED_SECONDS: Final = 600.0
"""For so long a node is unneeded before Cluster Autoscaler takes it away (`--scale-down-unneeded-time`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLife:
    """One node, from when pods may be bound to it until it is gone."""

    name: str
    gpus: int
    since: float = 0.0
    until: float = float("inf")
    notice_seconds: float = 0.0
    """How long before `until` its pods are told; 0: it is lost without a word."""
    spot: bool = True
    machine: str = ""
    """Its instance type, for prices; empty: not known."""
    slow_since: float = float("inf")
    """From then on workers on it are slow."""
    slow_times: float = 1.0
    """They take so many times as long for a step as others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InferencePod:
    """A pod that comes before training."""

    name: str
    gpus: int
    created: float
    seconds: float = float("inf")
    """How long it runs once it is Running."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """Nodes that a cluster autoscaler buys, beyond those of the day."""

    gpus: int
    """Of each node."""
    most: int
    """Nodes at one time, those that are on their way included."""
    delay_seconds: float = NODE_START_SECONDS
    unneeded_seconds: float = NODE_UNNEEDED_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """What happens to a cluster without regard to training."""

    source: str
    """Which trace or seed it is, for the report."""
    seconds: float
    """How long it is."""
    nodes: Iterable[NodeLife]
    """In the order in which they come. Read from the beginning several times, so not an iterator."""
    pods: Iterable[InferencePod] = ()
    """The same, in the order in which they are created. Those that were there before the day have `created=0`."""
    node_group: NodeGroup | None = None
    """None: no cluster autoscaler."""
