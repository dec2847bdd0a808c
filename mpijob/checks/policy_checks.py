"""What would break the promises of a job: a launcher preempted first, a queue that loses state, a blocked drain."""

from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from hvd_elastic.mpijob.checks import network_checks
from hvd_elastic.mpijob.description.job_spec import JobSpec, QueueSystem
from hvd_elastic.priorityclasses.problem import Problem

_BUCKETS: Final = ("s3", "gs")


def problems(spec: JobSpec) -> Iterator[Problem]:
    """Checks priorities, queue, disruption budget and checkpoints."""
    if spec.priority.launcher == spec.priority.workers:
        what = "is also the workers' class: the launcher, and with it the job, may be preempted first"
        yield Problem(path="priority.launcher", value=spec.priority.launcher, what=what, way_out="name a higher class")
    for key, name in (("launcher", spec.priority.launcher), ("workers", spec.priority.workers)):
        if name.startswith("system-"):
            what = "is a class for the cluster's own components: training would preempt them"
            yield Problem(path=f"priority.{key}", value=name, what=what, way_out="see `hvd-elastic priorityclasses`")
    if spec.queue and spec.queue.system is QueueSystem.KUEUE and spec.checkpoint is None:
        what = "suspends whole jobs, and what workers hold in memory is lost"
        yield Problem(path="queue.system", value="kueue", what=what, way_out="set checkpoint")
    if spec.queue and spec.queue.system is QueueSystem.KUEUE and spec.autoscale is not None:
        # Kueue `pkg/controller/jobframework/reconciler.go`: EquivalentToWorkload compares the numbers of pods, and
        # ensureOneWorkload suspends a running job that is no longer as it was admitted.
        what = "changes the number of workers, and Kueue suspends a job whole whose number changes while it runs"
        yield Problem(path="autoscale", value=..., what=what, way_out="leave it out, or use another queue")
    if spec.disruption_budget and not spec.workers.elastic:
        what = "would block every node drain: the job cannot spare a worker"
        yield Problem(path="disruption_budget", value=True, what=what, way_out="set workers.max above workers.min")
    if spec.checkpoint is not None:
        yield from _stored("checkpoint.url", spec.checkpoint.url, wanted="PREFIX")
        if spec.checkpoint.warm_start is not None:
            yield from _warm_start(spec.checkpoint.warm_start.url)
        yield from _endpoint(spec)


def _warm_start(url: str) -> Iterator[Problem]:
    path = "checkpoint.warm_start.url"
    yield from _stored(path, url, wanted="FILE")
    parts = _split(url)
    if parts is not None and parts[0] in _BUCKETS and parts[1] and not parts[2].strip("/"):
        way_out = f"write {parts[0]}://BUCKET/FILE"
        yield Problem(path=path, value=url, what="names no file in the bucket", way_out=way_out)


def _stored(path: str, url: str, *, wanted: str) -> Iterator[Problem]:
    """`wanted`: what is named below a bucket."""
    parts = _split(url)
    buckets = ", ".join(f"{scheme}://BUCKET/{wanted}" for scheme in _BUCKETS)
    way_out = f"write {buckets} or file:///{'FOLDER' if wanted == 'PREFIX' else wanted}"
    if parts is None or parts[0] not in {*_BUCKETS, "file"}:
        yield Problem(path=path, value=url, what="is not a URL for checkpoints", way_out=way_out)
    elif parts[0] in _BUCKETS and not parts[1]:
        yield Problem(path=path, value=url, what="names no bucket", way_out=way_out)
    elif parts[0] == "file" and (parts[1] or len(parts[2].strip("/")) == 0):
        yield Problem(path=path, value=url, what="names no path", way_out=way_out)


def _endpoint(spec: JobSpec) -> Iterator[Problem]:
    assert spec.checkpoint is not None
    url = spec.checkpoint.endpoint
    if url is None:
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
