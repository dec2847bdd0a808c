"""What ways that keep their world have in common."""

from hvd_elastic.decide.simulate.engine.job_run import JobRun, RunPhase
from hvd_elastic.decide.simulate.engine.job_workers import MemberLoss
from hvd_elastic.decide.simulate.engine.scheduled_pod import WorkerPhase


def form_when_enough(run: JobRun, needed: int, now: float) -> None:
    """Begin once so many are READY; not, if some of them go before the world is formed."""
    enough = run.workers.count(WorkerPhase.READY) >= needed
    if enough and run.phase is RunPhase.WAITING:
        run.form(now)
    elif not enough and run.phase is RunPhase.FORMING:
        run.turn_to(RunPhase.WAITING, now)


def change_world(run: JobRun, now: float) -> None:
    """One resize for all that has happened in this moment. Newcomers alone wait for a resize under way to end."""
    newcomers = run.workers.reachable_size > run.workers.count(WorkerPhase.MEMBER)
    if run.workers.departures or (newcomers and run.phase is not RunPhase.RESIZING):
        run.resize(now, _stall(run, grows=newcomers))


def _stall(run: JobRun, *, grows: bool) -> float:
    costs = {
        MemberLoss.TOLD: run.stalls.shrink,
        MemberLoss.KILLED: run.stalls.death,
        MemberLoss.NODE_LOST: run.stalls.node_lost,
    }
    stalls = [costs[how] for how in run.workers.departures.values()]
    return max([*stalls, run.stalls.grow] if grows else stalls)
