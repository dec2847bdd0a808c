"""Inference that asks for GPUs of the node, and how long it waits for each."""

from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class InferenceDemand:
    """Takes what training has left, the longest wait first. Times are seconds of one clock."""

    waits: list[float] = field(default_factory=list)
    """Seconds from each ask until it was met, or given up."""
    _has: int = 0
    _asks: list[float] = field(default_factory=list)
    """When it began to wait for each that it has not."""

    def ask(self, gpus: int, now: float) -> None:
        """Want so many from now on. What is too much goes at once, first what it has waited for the least."""
        more = gpus - self._has - len(self._asks)
        if more > 0:
            self._asks += [now] * more
            return
        waiting = max(0, len(self._asks) + more)
        self._has = min(self._has, gpus)
        self.waits += [now - since for since in self._asks[waiting:]]
        del self._asks[waiting:]

    def take(self, free: int, now: float) -> None:
        """Note that so many GPUs are without training."""
        while self._asks and self._has < free:
            self._has += 1
            self.waits.append(now - self._asks.pop(0))
