"""What every format of a recorded trace is read into."""

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
