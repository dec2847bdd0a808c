"""Jobs in a cluster, from Python: what the verbs of the command line call.

::

    from pathlib import Path
    from hvd_elastic import Cluster

    cluster = Cluster(namespace="team")
    cluster.submit(Path("job.yaml"))
    cluster.scale("bert", 4)
    print(cluster.status("bert").size)
    for line in cluster.logs("bert", follow=True):
        print(line)
    cluster.sweep(Path("job.yaml"), {"lr": [0.1, 0.01]}, at_once=1)
    best = cluster.sweep_status("bert").rows[0].point
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike

from hvd_elastic.client.connection.cluster_client import ClusterClient, Json
from hvd_elastic.client.doctor.checks import operator_checks
from hvd_elastic.client.doctor.diagnosis import Diagnosis
from hvd_elastic.client.doctor.examination import examine
from hvd_elastic.client.doctor.fact_reader import FactReader
from hvd_elastic.client.job_lookup import find_job
from hvd_elastic.client.logs.job_log import JobLog
from hvd_elastic.client.logs.log_line import LogLine, LogSelection
from hvd_elastic.client.logs.log_reading import LogRequest
from hvd_elastic.client.operations import deletion, first_step, restart, scaling, submission, suspension
from hvd_elastic.client.profile.job_profile import JobProfile
from hvd_elastic.client.profile.profile_of_job import profile_of_job
from hvd_elastic.client.report import bill, job_list, job_status, story
from hvd_elastic.client.report.bill import Bill
from hvd_elastic.client.report.job_list import ListedJob
from hvd_elastic.client.report.job_status import JobStatus
from hvd_elastic.client.report.prices import PriceList, read_prices
from hvd_elastic.client.report.story import Happening
from hvd_elastic.client.sweep import sweep_control, sweep_submission, sweep_table
from hvd_elastic.client.sweep.grid import points_of
from hvd_elastic.client.sweep.sweep_plan import JobInput, plan_sweep
from hvd_elastic.client.sweep.sweep_table import Best, SweepStatus
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.job_reader import read_job


class Cluster:
    """One caller at one cluster, in one namespace. Each method raises ClusterError with one clear sentence."""

    def __init__(
        self, *, context: str | None = None, namespace: str | None = None, impersonate: str | None = None
    ) -> None:
        """Log in as kubectl does. Sends nothing. Raises NotConfiguredError."""
        self.client = ClusterClient.connect(context=context, namespace=namespace, impersonate=impersonate)
        """For what has no method here."""

    @property
    def namespace(self) -> str:
        """The one that was asked for, else the context's, or the pod's."""
        return self.client.namespace

    def submit(
        self,
        job: JobSpec | str | PathLike[str],
        *,
        beside: Sequence[Json] = (),
        force: bool = False,
        dry_run: bool = False,
    ) -> submission.Submission:
        """Apply a job: a JobSpec, a file (a path), or the text of one. It goes into its own namespace, else into this.

        `beside`: objects of your own that are applied before it. `force` takes over fields of other managers;
        `dry_run` only asks whether the cluster would accept it.
        Raises InvalidInputError for a bad description, and what `submission.submit` raises.
        """
        spec = job if isinstance(job, JobSpec) else read_job(job, defaults={"namespace": self.namespace})
        return submission.submit(self._within(spec.namespace), spec, beside=beside, force=force, dry_run=dry_run)

    def wait_for_first_step(
        self,
        name: str,
        *,
        namespace: str | None = None,
        report: Callable[[first_step.StartProgress], None] = lambda _progress: None,
    ) -> first_step.StartProgress:
        """Wait until a job trains. `report` hears of each change."""
        return first_step.wait_for_first_step(self._within(namespace), name, report=report, sleep=time.sleep)

    def plan_deletion(self, name: str) -> deletion.DeletionPlan:
        """What would go with a job."""
        return deletion.plan_deletion(self.client, name)

    def delete(self, job: str | deletion.DeletionPlan, *, volumes: bool = False) -> Sequence[deletion.Part]:
        """Delete a job with everything beside it, and wait for its end. Volumes stay unless `volumes`."""
        plan = self.plan_deletion(job) if isinstance(job, str) else job
        return deletion.delete(self.client, plan, volumes=volumes, sleep=time.sleep)

    def suspend(self, name: str) -> suspension.Suspension:
        """Have all pods of a job deleted until it is resumed."""
        return suspension.suspend(self.client, name)

    def resume(self, name: str) -> suspension.Suspension:
        """Have the pods of a suspended job made again."""
        return suspension.resume(self.client, name)

    def resume_warning(self) -> str:
        """Why a job that has run before may not be resumed here, and the way out; empty: it is."""
        return operator_checks.resume_warning(FactReader(self.client, self.namespace).read_operators())

    def scale(
        self, name: str, workers: int, *, approve: Callable[[scaling.Scaling], None] = lambda _scaling: None
    ) -> scaling.Scaling:
        """Ask for a number of workers. Those that go leave training first.

        `approve` is told what is about to be asked for, above all whether the job restarts (`Scaling.restarts`).
        Nothing is changed if it raises.
        """
        return scaling.scale(self.client, name, workers, approve=approve)

    def wait_for_size(
        self, name: str, workers: int, *, report: Callable[[scaling.SizeProgress], None] = lambda _progress: None
    ) -> None:
        """Wait until so many workers train."""
        scaling.wait_for_size(self.client, name, workers, report=report, sleep=time.sleep)

    def plan_restart(self, name: str) -> restart.RestartPlan:
        """What a restart would do, and what it would lose."""
        return restart.plan_restart(self.client, name)

    def restart(self, job: str | restart.RestartPlan) -> restart.RestartPlan:
        """Begin a job anew from its last durable checkpoint, whether it goes on or has ended."""
        plan = self.plan_restart(job) if isinstance(job, str) else job
        restart.restart(self.client, plan, sleep=time.sleep)
        return plan

    def status(self, name: str) -> JobStatus:
        """The truth about a job, now."""
        return job_status.status(self.client, name)

    def list(self, *, all_namespaces: bool = False) -> Sequence[ListedJob]:
        """The jobs of the namespace, or of all."""
        return job_list.list_job_states(self.client, None if all_namespaces else self.namespace)

    def events(self, name: str) -> Sequence[Happening]:
        """What has happened to a job, oldest first."""
        return story.story(self.client, name)

    def profile(self, name: str) -> JobProfile:
        """How fast a job is at any size, from what it has reported at some. Raises NotMeasuredError."""
        return profile_of_job(self.client, name)

    def logs(
        self, name: str, *, follow: bool = False, ranks: Sequence[int] = (), tail: int | None = None
    ) -> Iterator[LogLine]:
        """What a job prints: all ranks, or these. With `follow`, until the job has ended."""
        request = LogRequest(follow=follow, selection=LogSelection(ranks=frozenset(ranks)), tail=tail)
        return JobLog(self.client, find_job(self.client, name, self.namespace).job).read(request)

    def cost(self, name: str, *, prices: PriceList | None = None) -> Bill | None:
        """What a job has held, lent and lost, and what that cost; None: it has no ledger.

        `prices`: by default the list that ships; `hvd_elastic.client.report.prices.read_prices` reads a file.
        """
        return bill.bill(self.client, name, prices or read_prices())

    def costs(self, *, all_namespaces: bool = False, prices: PriceList | None = None) -> Sequence[Bill]:
        """The bills of all jobs of the namespace, or of all, that have a ledger."""
        return list(bill.bills(self.client, prices or read_prices(), None if all_namespaces else self.namespace))

    def doctor(self) -> Sequence[Diagnosis]:
        """Whether the cluster has what elastic training needs. Changes nothing."""
        return examine(FactReader(self.client, self.namespace).read())

    def sweep(
        self,
        job: JobSpec | str | PathLike[str],
        points: Mapping[str, Sequence[object]] | Sequence[Mapping[str, object]],
        *,
        at_once: int | None = None,
        dry_run: bool = False,
    ) -> sweep_submission.SweepSubmission:
        """Submit a job for each point: of a grid, as `{"lr": [0.1, 0.01]}`, or of a list, as `[{"lr": 0.1}]`.

        `job` as in `submit`; its name is the sweep's. Raises InvalidInputError with the problems of all points, and
        what `sweep_submission.submit_sweep` raises.
        """
        source = job.as_json() if isinstance(job, JobSpec) else job
        given = JobInput(source=source, defaults={"namespace": self.namespace})
        plan = plan_sweep(given, points_of(points), at_once=at_once)
        return sweep_submission.submit_sweep(self._within(plan.base.namespace), plan, dry_run=dry_run)

    def sweep_status(self, name: str, *, metric: str = sweep_table.LOSS, best: Best = Best.MIN) -> SweepStatus:
        """The jobs of a sweep, the best first."""
        return sweep_table.sweep_status(self.client, name, metric=metric, best=best)

    def stop_sweep(self, name: str) -> sweep_control.SweepChange:
        """Suspend all jobs of a sweep that have not ended, and give no more turns."""
        return sweep_control.stop_sweep(self.client, name, sleep=time.sleep)

    def resume_sweep(self, name: str) -> sweep_control.SweepChange:
        """Let a sweep that was stopped go on."""
        return sweep_control.resume_sweep(self.client, name)

    def plan_sweep_deletion(self, name: str) -> sweep_control.SweepDeletion:
        """What would go with a sweep."""
        return sweep_control.plan_sweep_deletion(self.client, name)

    def delete_sweep(
        self,
        sweep: str | sweep_control.SweepDeletion,
        *,
        volumes: bool = False,
        report: Callable[[str], None] = lambda _name: None,
    ) -> None:
        """Delete all jobs of a sweep with everything beside them. `report` hears the name of what went."""
        plan = self.plan_sweep_deletion(sweep) if isinstance(sweep, str) else sweep
        sweep_control.delete_sweep(self.client, plan, volumes=volumes, sleep=time.sleep, report=report)

    def _within(self, namespace: str | None) -> ClusterClient:
        return self.client if namespace is None else self.client.within(namespace)
