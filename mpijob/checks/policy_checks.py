"""What would break the promises of a job: a launcher preempted first, a queue that loses state, a blocked drain."""

from collections.abc import Iterator
from urllib.parse import urlsplit

from hvd_elastic.mpijob import contract
from hvd_elastic.mpijob.checks import network_checks
from hvd_elastic.mpijob.clouds.bucket_url import BUCKET_FORMS, BucketUrl
from hvd_elastic.mpijob.clouds.cloud import Capacity, Cloud
from hvd_elastic.mpijob.description.job_spec import JobSpec, QueueSpec, QueueSystem
from hvd_elastic.priorityclasses.problem import Problem


def problems(spec: JobSpec) -> Iterator[Problem]:
    """Checks priorities, queue, disruption budget and checkpoints."""
    if spec.priority.launcher == spec.priority.workers:
        what = "is also the workers' class: the launcher, and with it the job, may be preempted first"
        yield Problem(path="priority.launcher", value=spec.priority.launcher, what=what, way_out="name a higher class")
    for key, name in spec.priority:
        if name.startswith("system-"):
            what = "is a class for the cluster's own components: training would preempt them"
            yield Problem(path=f"priority.{key}", value=name, what=what, way_out="see `hvd-elastic priorityclasses`")
    if spec.queue:
        yield from _queue(spec, spec.queue)
    if spec.workers.floor:
        yield from _floor(spec)
    if spec.disruption_budget and not spec.workers.elastic:
        what = "would block every node drain: the job cannot spare a worker"
        yield Problem(path="disruption_budget", value=True, what=what, way_out="set workers.max above workers.min")
    if spec.slow_workers == "replace":
        yield from _slow_workers(spec)
    if spec.checkpoint is not None:
        yield from _stored("checkpoint.url", spec.checkpoint.url, wanted="PREFIX")
        if spec.checkpoint.warm_start is not None:
            yield from _warm_start(spec.checkpoint.warm_start.url)
        yield from _endpoint(spec)
        yield from _account(spec)


def _slow_workers(spec: JobSpec) -> Iterator[Problem]:
    if spec.workers.gpus:
        what, way_out = "has no effect: nothing tells yet which worker is slow on a GPU", "leave it out"
        yield Problem(path="slow_workers", value=spec.slow_workers, what=what, way_out=way_out)
    elif not spec.workers.elastic:
        what, way_out = "has no effect: the job cannot spare a worker", "set workers.max above workers.min"
        yield Problem(path="slow_workers", value=spec.slow_workers, what=what, way_out=way_out)


def _queue(spec: JobSpec, queue: QueueSpec) -> Iterator[Problem]:
    if queue.whole and not queue.takes_whole:
        what = f"is for Kueue: {queue.system} places workers one by one beyond the first workers.min"
        yield Problem(path="queue.whole", value=True, what=what, way_out="leave it out")
    if queue.takes_whole and spec.checkpoint is None:
        what = "has Kueue suspend the whole job, and what workers hold in memory is lost"
        yield Problem(path="queue.whole", value=True, what=what, way_out="leave it out, or set checkpoint")
    if queue.takes_whole and spec.autoscale is not None:
        # Kueue `pkg/controller/jobframework/reconciler.go`: EquivalentToWorkload compares the numbers of pods, and
        # ensureOneWorkload suspends a running job that is no longer as it was admitted.
        what = "changes the number of workers, and with queue.whole Kueue suspends a running job for that"
        yield Problem(path="autoscale", value=..., what=what, way_out="leave one of them out")


def _floor(spec: JobSpec) -> Iterator[Problem]:
    if spec.priority.floor in (spec.priority.workers, spec.priority.launcher):
        what = "is below inference, which would take these pods too"
        way_out = "name a class of inference's value: hvd-elastic priorityclasses"
        yield Problem(path="priority.floor", value=spec.priority.floor, what=what, way_out=way_out)
    if spec.queue and (spec.queue.takes_whole or spec.queue.system is not QueueSystem.KUEUE):
        what = "is a class of single workers, and "
        if spec.queue.takes_whole:
            what += "with queue.whole Kueue evicts all of them at once"
            way_out = "leave queue.whole out"
        else:
            what += f"{spec.queue.system} has one rank for all pods of a job"
            way_out = "leave it out: it takes no worker below workers.min alone"
        yield Problem(path="workers.floor", value=spec.workers.floor, what=what, way_out=way_out)


def assumptions(spec: JobSpec) -> Iterator[str]:
    """What a cluster must have for the job to be treated as it says, and `submit` would look at."""
    if spec.queue and spec.queue.system is QueueSystem.KUEUE and not spec.queue.whole:
        yield (
            "queue: Kueue 0.18 or later admits each worker, and takes it back, by itself; for an older Kueue set "
            "queue.whole"
        )
    if spec.workers.floor:
        yield (
            f"workers.floor: takes Kubernetes 1.36 and the policy that gives the first workers {spec.priority.floor}: "
            "hvd-elastic platform-kit --with floor"
        )


def notes(spec: JobSpec) -> Iterator[str]:
    """What a floor does not do."""
    if not spec.workers.floor:
        return
    yield (
        "workers.floor: these workers preempt nobody either: after a lost node, or at the start, they wait until a GPU "
        "is free"
    )
    if spec.cloud is not Cloud.ANY and spec.capacity is not Capacity.ON_DEMAND:
        yield (
            "workers.floor: on spot nodes the cloud takes these workers all the same; capacity: on-demand keeps them"
        )


def _warm_start(url: str) -> Iterator[Problem]:
    path = "checkpoint.warm_start.url"
    wrong = list(_stored(path, url, wanted="FILE"))
    yield from wrong
    form = BUCKET_FORMS.get(url.partition(":")[0])
    if form is not None and not wrong and not BucketUrl.parse(url).path:
        way_out = f"write {form}/FILE"
        yield Problem(path=path, value=url, what="names no file in the bucket", way_out=way_out)


def _stored(path: str, url: str, *, wanted: str) -> Iterator[Problem]:
    """`wanted`: what is named below a bucket."""
    parts = _split(url)
    forms = ", ".join(f"{BUCKET_FORMS[scheme]}/{wanted}" for scheme in ("s3", "gs", "az"))
    way_out = f"write {forms} or file:///{'FOLDER' if wanted == 'PREFIX' else wanted}"
    if parts is None or parts[0] not in {*BUCKET_FORMS, "file"}:
        yield Problem(path=path, value=url, what="is not a URL for checkpoints", way_out=way_out)
        return
    place = BucketUrl.parse(url)
    if parts[0] == "file":
        if place.bucket or not place.path:
            yield Problem(path=path, value=url, what="names no path", way_out=way_out)
    elif not place.bucket:
        yield Problem(path=path, value=url, what="names no bucket", way_out=f"write {BUCKET_FORMS[parts[0]]}/{wanted}")
    elif place.account is not None and not place.has_account:
        what = "names no storage account of Azure"
        yield Problem(path=path, value=url, what=what, way_out=f"write {BUCKET_FORMS[parts[0]]}/{wanted}")


def _account(spec: JobSpec) -> Iterator[Problem]:
    assert spec.checkpoint is not None
    warm_start = [spec.checkpoint.warm_start.url] if spec.checkpoint.warm_start else []
    if any(url.startswith("az:") for url in (spec.checkpoint.url, *warm_start)):
        known = spec.checkpoint.account or spec.checkpoint.endpoint or contract.ENV_AZURE_ACCOUNT in spec.env
        if not known and not spec.secrets:
            what = "names a container alone"
            way_out = "name the storage account: set checkpoint.account"
            yield Problem(path="checkpoint.url", value=spec.checkpoint.url, what=what, way_out=way_out)
    elif spec.checkpoint.account is not None:
        what = "has no effect without a URL that begins with az://"
        yield Problem(path="checkpoint.account", value=spec.checkpoint.account, what=what, way_out="leave it out")


def _endpoint(spec: JobSpec) -> Iterator[Problem]:
    assert spec.checkpoint is not None
    url = spec.checkpoint.endpoint
    if url is None:
        return
    if _split(spec.checkpoint.url) is not None and BucketUrl.parse(spec.checkpoint.url).account is not None:
        what = "has no effect: checkpoint.url names the account's own"
        yield Problem(path="checkpoint.endpoint", value=url, what=what, way_out="leave it out, or write az://")
        return
    parts = _split(url)
    if parts is None or parts[0] not in {"http", "https"} or not parts[1]:
        yield Problem(
            path="checkpoint.endpoint", value=url, what="is not the URL of a service", way_out="write https://HOST"
        )
        return
    port = parts[3] or {"http": 80, "https": 443}[parts[0]]
    if spec.network.policy and port not in network_checks.open_ports(spec):
        what = f"is reached on port {port}, which the NetworkPolicy blocks"
        way_out = f"add {port} to network.storage_ports"
        yield Problem(path="checkpoint.endpoint", value=url, what=what, way_out=way_out)


def _split(url: str) -> tuple[str, str, str, int | None] | None:
    """Scheme, host, path and port of a URL. None: it is not a valid URL. The path of a file may have spaces."""
    if not url.isprintable() or (" " in url and not url.startswith("file:")):
        return None
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.hostname or "", parts.path, parts.port
    except ValueError:
        return None
