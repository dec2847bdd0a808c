"""Makes one burst after the other: inference asks, runs, and gives back."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.burst.measured_burst import Burst, Measured
from testbed.cluster.inference import Inference
from testbed.cluster.pod_watch import PodWatch
from testbed.cluster.pods import wait_for_any_moment
from testbed.cluster.timeline import Sighting
from testbed.kube import waiting

WITHIN_SECONDS = 180.0
"""A deadline for what takes seconds, not a figure that anything is measured by."""
INFERENCE = "inference"
"""Its pods begin with that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BurstLoad:
    """Inference at one place."""

    place: str
    load: Inference
    watch: PodWatch
    found: dict[tuple[int, str], list[Burst]] = field(default_factory=dict)
    """By number of GPUs and kind."""

    def burst(self, kind: str, gpus: int) -> None:
        """Ask for so many GPUs at once, wait until all of them are had, and note it."""
        wait_for_any_moment()
        began = time.time()
        self.load.scale(gpus)
        self.until_running(INFERENCE, gpus)
        victims = {life.uid for life in self.watch.lives() if (life.told or 0.0) >= began}
        self._until("the victims are gone", lambda: not victims & {pod.uid for pod in self.watch.pods()})
        lives = self.watch.lives()
        asked = [life for life in lives if life.created >= began and life.pod.startswith(INFERENCE)]
        burst = Burst.of(asked, [life for life in lives if life.uid in victims])
        self.found.setdefault((gpus, kind), []).append(burst)
        print(f"  {self.place}, {gpus} from {kind}: all run after {burst.whole:.2f} s", flush=True)

    def give_back(self) -> None:
        """Inference needs no GPU any more; returns when its pods are gone."""
        self.load.scale(0)
        self._until("no pod of inference is left", lambda: not self._of(INFERENCE))

    def until_running(self, prefix: str, count: int) -> None:
        """Wait until exactly so many pods of a name run, and none of them is told to end."""
        self._until(f"{count} pods {prefix}* run", lambda: self._running(prefix) == count)

    def come_to_run(self, prefix: str, count: int, *, within_seconds: float) -> bool:
        """Whether exactly so many pods of a name run in time."""
        return waiting.reached(lambda: self._running(prefix) == count, within_seconds, every_seconds=0.05)

    def measured(self) -> list[Measured]:
        """All that was found, with the machine's load as it is now."""
        load = os.getloadavg()[0]
        return [
            Measured(place=self.place, gpus=gpus, kind=kind, bursts=bursts, load=load)
            for (gpus, kind), bursts in self.found.items()
        ]

    def _running(self, prefix: str) -> int:
        return sum(pod.phase == "Running" and pod.ready and not pod.leaving for pod in self._of(prefix))

    def _of(self, prefix: str) -> list[Sighting]:
        return [pod for pod in self.watch.pods() if pod.pod.startswith(prefix)]

    def _until(self, what: str, probe: Callable[[], bool]) -> None:
        waiting.until(what, probe, within_seconds=WITHIN_SECONDS, every_seconds=0.05, seen=self._seen)

    def _seen(self) -> str:
        return str(self.load.kubectl("get", "pods", "-o", "wide"))
