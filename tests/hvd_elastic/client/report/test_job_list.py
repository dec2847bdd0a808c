"""A list says of each job what its MPIJob says, and no more."""

from hvd_elastic.client.report.job_list import listed, total
from hvd_elastic.client.report.job_state import JobState
from tests.hvd_elastic.client.report.objects import NOW, condition, live, mpijob


def test_a_job_that_trains() -> None:
    job = listed(mpijob(status=live(gpu_seconds=7200.0, training_seconds=3000.0, preemptions=2)), NOW)
    assert (job.state, job.size, job.min_workers, job.max_workers, job.step) == (JobState.TRAINING, 2, 1, 8, 90)
    assert (job.wall_seconds, job.training_seconds, job.gpu_seconds) == (3600.0, 3000.0, 7200.0)


def test_wall_time_ends_with_the_job() -> None:
    job = listed(mpijob(status=live(), conditions=[condition("Succeeded")], ended=NOW - 600), NOW)
    assert (job.state, job.size, job.wall_seconds) == (JobState.SUCCEEDED, 0, 3000.0)


def test_what_a_job_without_a_ledger_used_is_not_known() -> None:
    job = listed(mpijob(conditions=[condition("Running")]), NOW)
    assert (job.state, job.step, job.gpu_seconds, job.training_seconds) == (JobState.NO_REPORT, -1, None, None)
    assert listed(mpijob(), NOW).state is JobState.STARTING


def test_the_total_is_the_sum_of_what_is_known() -> None:
    jobs = [listed(mpijob(status=live(gpu_seconds=10.0, preemptions=1)), NOW), listed(mpijob(), NOW)]
    sums = total(jobs)
    assert (sums.jobs, sums.training, sums.workers, sums.gpu_seconds, sums.preemptions) == (2, 1, 2, 10.0, 1)
