"""What is told of commits, when workers are lost at any place: a fact of every commit, and none of what was undone."""

import copy
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.trainer.fit.fit_progress import FitProgress, Outbox


@dataclass
class Worker:
    """One process of a job in miniature. `told` is what all ranks 0 have told, one after the other."""

    told: list[int]
    progress: FitProgress = field(default_factory=FitProgress)
    commit: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.outbox = Outbox(self.progress)
        self.save()

    def save(self) -> None:
        self.commit = copy.deepcopy(self.progress.state_dict())

    def go_to(self, commit: dict[str, object]) -> None:
        self.commit = copy.deepcopy(commit)
        self.progress.load_state_dict(copy.deepcopy(commit))

    def step(self) -> None:
        self.outbox.step_done()
        self.progress.step += 1
        self.progress.record("step")

    def tell(self, *, is_first: bool) -> None:
        for fact in self.outbox.take():
            if is_first:
                self.told.append(fact["step"])
                self.outbox.mark_told(fact)


DISTURBANCES = st.sampled_from(
    [
        "nothing",
        "resize at the commit",
        "rank 0 leaves at the commit",
        "lost in the step",
        "rank 0 dies before it tells",
    ]
)


@given(st.lists(DISTURBANCES, max_size=12))
def test_every_committed_fact_is_told_once(disturbances: list[str]) -> None:
    told: list[int] = []
    workers = [Worker(told), Worker(told)]
    for disturbance in disturbances:
        for worker in workers:
            worker.step()
        if disturbance == "lost in the step":
            for worker in workers:
                worker.go_to(worker.commit)
        else:
            for worker in workers:
                worker.save()
        if disturbance == "nothing":
            for rank, worker in enumerate(workers):
                worker.tell(is_first=rank == 0)
            continue
        if disturbance.startswith("rank 0"):
            workers = [workers[1], Worker(told)]
            workers[1].go_to(workers[0].commit)
        for rank, worker in enumerate(workers):
            worker.go_to(worker.commit)
            worker.tell(is_first=rank == 0)
    assert told == list(range(1, workers[0].progress.step + 1))


def test_what_rank_0_may_not_have_told_is_told_by_the_next() -> None:
    """It died after the commit, while it wrote: the others have begun no step since."""
    told: list[int] = []
    first, second = Worker(told), Worker(told)
    for worker in (first, second):
        worker.step()
        worker.save()
    second.tell(is_first=False)
    second.go_to(second.commit)
    second.tell(is_first=True)
    assert told == [1]


def test_after_a_complete_step_the_others_know_that_it_is_told() -> None:
    told: list[int] = []
    second = Worker(told)
    second.step()
    second.save()
    second.tell(is_first=False)
    second.step()  # rank 0 took part in it, so it had told step 1; it is lost now
    second.go_to(second.commit)
    second.tell(is_first=True)
    assert told == []
