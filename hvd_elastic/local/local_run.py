"""`hvd-elastic run`: a job on this machine, from its start to its exit code."""

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Final

from hvd_elastic.local.local_environment import local_environment
from hvd_elastic.local.local_job import LocalJob, local_cluster, local_job, warm_up
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.problems import InvalidInputError
from hvd_elastic.priorityclasses.problem import Problem
from hvd_elastic.system.child_processes import signals_handled

LOOK_SECONDS: Final = 0.1
"""Between two looks at the hosts while they are changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedResize:
    """Change the number of hosts to `hosts`, `at_seconds` after the launcher's start.

    Where the machine is late with one, those after it are as late: each is to be seen.
    """

    at_seconds: float
    hosts: int


class Interrupted(Exception):  # noqa: N818 - not an error
    """A signal asked this process to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def parse_resizes(text: str | None) -> tuple[TimedResize, ...]:
    """Read `20:1,40:4`, in the order of time. Raises InvalidInputError with each part that is not SECONDS:HOSTS."""
    resizes, problems = [], []
    for part in filter(None, (text or "").split(",")):
        seconds, _, hosts = part.partition(":")
        try:
            resize = TimedResize(at_seconds=float(seconds), hosts=int(hosts))
            if resize.at_seconds < 0 or resize.hosts < 0:
                raise ValueError(part)
            resizes.append(resize)
        except ValueError:
            problems.append(
                Problem(path="--resize", value=part, what="is not SECONDS:HOSTS", way_out="write it like 20:1,40:4")
            )
    if problems:
        raise InvalidInputError(problems)
    return tuple(sorted(resizes, key=lambda resize: resize.at_seconds))


def run_job(spec: JobSpec, *, say: Callable[[str], None], resizes: Sequence[TimedResize] = ()) -> int:
    """Run `spec`, which must have no `local_problems`, on this machine. Every process is gone afterwards.

    Returns:
        The exit code; 128 + signal if the run was interrupted.

    Raises:
        WarmUpError: too few hosts became ready.
    """
    environment = local_environment(spec)
    try:
        with _signals_raise(), local_cluster(spec, environment=environment) as cluster:
            warm_up(cluster, spec, say)
            with local_job(spec, cluster, environment=environment) as job:
                try:
                    return _wait(job, resizes, say)
                except Interrupted as interrupted:
                    job.end(interrupted.number)
                    raise
    except Interrupted as interrupted:
        return 128 + interrupted.number


def _wait(job: LocalJob, resizes: Sequence[TimedResize], say: Callable[[str], None]) -> int:
    began = time.monotonic()
    due, shown = list(resizes), ""
    while True:
        until = due[0].at_seconds - (time.monotonic() - began) if due else 3600.0
        code = job.wait(max(0.0, min(until, LOOK_SECONDS) if shown else until))
        if code is not None:
            return code
        if due and (late := time.monotonic() - began - due[0].at_seconds) >= 0:
            began += late
            job.cluster.want(due.pop(0).hosts)
            shown = "resize"
        if shown:
            shown = _say_ready(job, shown, say)


def _say_ready(job: LocalJob, shown: str, say: Callable[[str], None]) -> str:
    """Say how many of the wanted hosts are ready, if that is not what was `shown` last. Returns what is shown now; an
    empty text once all are ready.
    """
    wanted, offered = job.cluster.wanted, len(job.cluster.offered)
    words = f"resize: {wanted} {'host' if wanted == 1 else 'hosts'} wanted, {min(offered, wanted)} of {wanted} ready"
    if words != shown:
        say(words)
    return words if offered != wanted else ""


@contextmanager
def _signals_raise() -> Iterator[None]:
    """Turn SIGINT, SIGTERM and SIGHUP into Interrupted, once: the clean-up must not be interrupted."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def end(number: int, _frame: FrameType | None) -> None:
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)
        raise Interrupted(number)

    assert threading.current_thread() is threading.main_thread()
    with signals_handled(numbers, end):
        yield
