"""Which workers give their GPUs back, before the scheduler chooses some itself.

A job gives its last workers: the MPI Operator deletes the highest indexes, so a worker in the middle cannot be chosen.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from hvd_elastic.policy.job_demand import JobDemand
from hvd_elastic.policy.sharing import useful_gpus

JUST_RESIZED_SECONDS: Final = 60.0
"""A job that changed so lately gives workers only if no other can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedJob:
    """A job and the nodes of its workers."""

    demand: JobDemand
    nodes: tuple[str, ...]
    """Of each worker, by index: the last is the first to go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loss:
    """Some last workers of one job: what they are worth, and what they free."""

    job: str
    workers: int
    just_resized: bool
    worth: float
    freed: int
    """GPUs in all."""
    freed_there: int
    """GPUs on the node for which room is made."""


def victims(jobs: Sequence[PlacedJob], needed: int, free: Mapping[str, int]) -> dict[str, int] | None:
    """How many workers each job gives, so that one node has `needed` GPUs free; None if that cannot be.

    `free`: idle GPUs by node. The node is the one that costs least throughput `X(K) - X(K-v)`. No job falls below its
    min. Source: ours, in place of GFS's cost (ASPLOS'26), because a drain loses no work.
    """
    plans = [_on_node(jobs, node, needed - free[node]) for node in sorted(free)]
    best = min((plan for plan in plans if plan is not None), key=_cost, default=None)
    return None if best is None else dict(_given(best))


def victims_anywhere(jobs: Sequence[PlacedJob], needed: int) -> dict[str, int]:
    """How many workers each job gives, so that so many GPUs are free, on any nodes; fewer if there are no more.

    Whole nodes first: of equal losses the one whose node is emptied soonest.
    """
    taken: list[_Loss] = []
    while sum(loss.freed for loss in taken) < needed:
        left = _left(jobs, taken)
        held = Counter(node for job in left for node in job.nodes)
        last = [(loss, held[job.nodes[-1]]) for job in left for loss in _losses(job, job.nodes[-1], 1)]
        if not last:
            break
        taken.append(min(last, key=lambda one: _by_node(*one))[0])
    return dict(_given(taken))


def _by_node(loss: _Loss, held: int) -> tuple[bool, float, int, str]:
    return loss.just_resized, round(loss.worth / loss.freed, 6), held, loss.job


def _on_node(jobs: Sequence[PlacedJob], node: str, missing: int) -> list[_Loss] | None:
    taken: list[_Loss] = []
    while missing > 0:
        there = [job for job in _left(jobs, taken) if node in job.nodes]
        losses = [loss for job in there for loss in _losses(job, node, missing) if loss.freed_there]
        if not losses:
            return None
        taken.append(_cheapest(losses, missing))
        missing -= taken[-1].freed_there
    return taken


def _cheapest(losses: Iterable[_Loss], missing: int) -> _Loss:
    """Least lost throughput for each GPU that is of use; of equal ones the one that frees least in vain."""

    def price(loss: _Loss) -> tuple[bool, float, int, str]:
        useful = min(missing, loss.freed_there)
        return loss.just_resized, round(loss.worth / useful, 6), loss.freed - useful, loss.job

    return min(losses, key=price)


def _losses(job: PlacedJob, node: str, missing: int) -> Iterator[_Loss]:
    """For each number of last workers, until so many GPUs of the node are free, or the job has its min."""
    demand, size, there = job.demand, len(job.nodes), 0
    gpus = max(1, demand.gpus)
    for given in range(1, size - demand.min + 1):
        there += gpus if job.nodes[size - given] == node else 0
        yield _Loss(
            job=demand.name,
            workers=given,
            just_resized=demand.since_resize_seconds < JUST_RESIZED_SECONDS,
            worth=useful_gpus(demand, size) - useful_gpus(demand, size - given),
            freed=given * gpus,
            freed_there=there,
        )
        if there >= missing:
            return


def _left(jobs: Sequence[PlacedJob], taken: Sequence[_Loss]) -> list[PlacedJob]:
    """The jobs with the workers that they still have; those without any are left out."""
    given = _given(taken)
    left = (replace(job, nodes=job.nodes[: len(job.nodes) - given[job.demand.name]]) for job in jobs)
    return [job for job in left if job.nodes]


def _given(losses: Iterable[_Loss]) -> Counter[str]:
    given: Counter[str] = Counter()
    for loss in losses:
        given[loss.job] += loss.workers
    return given


def _cost(losses: Sequence[_Loss]) -> tuple[bool, float, int]:
    """Of a whole plan."""
    return any(loss.just_resized for loss in losses), round(sum(loss.worth for loss in losses), 6), len(losses)
