"""What became of pods, and when: made of what a watch has told."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from testbed.cluster.timeline import Sighting


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLife:
    """A pod from its creation on. Times are seconds since the epoch, when the news arrived; None: not yet."""

    pod: str
    uid: str
    created: float
    bound: float | None = None
    """The scheduler has chosen its node."""
    running: float | None = None
    told: float | None = None
    """To end: it has a deletion timestamp."""
    gone: float | None = None

    @property
    def wait(self) -> float | None:
        """Seconds from its creation until it ran."""
        return None if self.running is None else self.running - self.created

    @property
    def leaving(self) -> float | None:
        """Seconds from the word to end until it was gone."""
        return None if self.told is None or self.gone is None else self.gone - self.told


def pod_lives(sightings: Iterable[Sighting]) -> list[PodLife]:
    """The life of each pod, by the order in which they were created. Sightings come in the order of time."""
    lives: dict[str, PodLife] = {}
    for seen in sightings:
        life = lives.get(seen.uid) or PodLife(pod=seen.pod, uid=seen.uid, created=seen.time)
        lives[seen.uid] = _after(life, seen)
    return list(lives.values())


def _after(life: PodLife, seen: Sighting) -> PodLife:
    """The same life with what a sighting is the first to tell."""

    def first(before: float | None, *, told: bool) -> float | None:
        return seen.time if before is None and told else before

    return replace(
        life,
        bound=first(life.bound, told=bool(seen.node)),
        running=first(life.running, told=seen.phase == "Running"),
        told=first(life.told, told=seen.leaving),
        gone=first(life.gone, told=seen.change == "DELETED"),
    )
