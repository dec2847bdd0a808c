"""What a cluster must have before a job is written into it: one sentence for each thing that it lacks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hvd_elastic.client.connection.cluster_client import ClusterError, Json, NotFoundError, Read
from hvd_elastic.client.connection.server_version import OLDEST_MINOR, minor
from hvd_elastic.mpijob.contract import Exit
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.manifests.supporting import bucket_volume

_SERVER: Final = "/version"
_GROUP: Final = "/apis/kubeflow.org"
_VERSION: Final = "/apis/kubeflow.org/v2beta1"
_CLASSES: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"
_DRIVERS: Final = "/apis/storage.k8s.io/v1/csidrivers"
_MONITORING: Final = "/apis/monitoring.coreos.com/v1"

Answers = Mapping[str, Json | ClusterError]
"""By path. What may not be read says nothing about the cluster."""


class NotReadyError(ClusterError):
    """The cluster lacks what the job needs. Nothing was written."""

    exit_code = Exit.BAD_INPUT


@dataclass(frozen=True, slots=True, kw_only=True)
class Prerequisites:
    """What one job needs of a cluster."""

    namespace: str
    classes: tuple[str, ...]
    monitor: bool
    bucket: str = ""
    """URL of the bucket that is `output`; empty: that is none."""
    driver: str = ""
    """What mounts it."""

    @classmethod
    def of(cls, spec: JobSpec) -> "Prerequisites":
        """Those of a job description."""
        classes = dict.fromkeys((spec.priority.launcher, spec.priority.workers))
        bucket = spec.output.bucket if spec.output else None
        return cls(
            namespace=spec.namespace,
            classes=tuple(classes),
            monitor=spec.monitor,
            bucket=bucket.url if bucket else "",
            driver=bucket_volume.driver(bucket) if bucket else "",
        )

    def reads(self) -> Sequence[Read]:
        """What must be asked."""
        paths = [_SERVER, _GROUP, _VERSION, self._namespace_path, *(f"{_CLASSES}/{name}" for name in self.classes)]
        paths += [_MONITORING] if self.monitor else []
        return [Read(path=path) for path in [*paths, *([self._driver_path] if self.driver else [])]]

    def lacking(self, answers: Answers) -> Iterator[str]:
        """A sentence for each thing that the cluster lacks, with the way out."""
        yield from _too_old(answers.get(_SERVER))
        if _is_absent(answers, self._namespace_path):
            yield f"there is no namespace {self.namespace}: kubectl create namespace {self.namespace}"
        yield from _without_mpijobs(answers)
        if absent := [name for name in self.classes if _is_absent(answers, f"{_CLASSES}/{name}")]:
            many = "Classes" if len(absent) > 1 else "Class"
            yield (
                f"the Priority{many} {' and '.join(absent)} {'are' if len(absent) > 1 else 'is'} missing: "
                "hvd-elastic priorityclasses | kubectl apply -f -"
            )
        if self.monitor and _is_absent(answers, _MONITORING):
            yield "monitor: the Prometheus Operator is missing (no PodMonitor of monitoring.coreos.com/v1): install it"

        if self.driver and _is_absent(answers, self._driver_path):
            way_out = f"{bucket_volume.DRIVERS[self.driver]}, or name a claim as output"
            yield f"output: the cluster has no CSI driver {self.driver}, so no pod could mount {self.bucket}: {way_out}"

    @property
    def _driver_path(self) -> str:
        return f"{_DRIVERS}/{self.driver}"

    @property
    def _namespace_path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}"


def _too_old(server: Json | ClusterError | None) -> Iterator[str]:
    """An older API server drops the sidecar's `restartPolicy`, and then refuses the launcher for the sidecar's probes
    (`validateInitContainers` of Kubernetes 1.34): workers would hold their GPUs without one.
    """
    version = str(server.get("gitVersion", "")) if isinstance(server, dict) else ""
    if 0 < minor(version) < OLDEST_MINOR:
        yield f"the cluster is Kubernetes {version}, which has no native sidecars: upgrade to 1.{OLDEST_MINOR} or later"


def _without_mpijobs(answers: Answers) -> Iterator[str]:
    if _is_absent(answers, _GROUP):
        yield "this cluster has no MPIJobs (no CRD mpijobs.kubeflow.org): hvd-elastic doctor says how to install them"
    elif _is_absent(answers, _VERSION) or not _serves_mpijobs(answers[_VERSION]):
        yield (
            f"the MPIJobs of this cluster are of {_versions(answers[_GROUP])}, not of kubeflow.org/v2beta1: install "
            "the MPI Operator (hvd-elastic doctor says how), or use hvd-elastic generate --as mpijob-v1"
        )


def _is_absent(answers: Answers, path: str) -> bool:
    return isinstance(answers.get(path), NotFoundError)


def _serves_mpijobs(version: Json | ClusterError) -> bool:
    return not isinstance(version, dict) or any(one["name"] == "mpijobs" for one in version.get("resources", ()))


def _versions(group: Json | ClusterError) -> str:
    versions: Sequence[Any] = group.get("versions", ()) if isinstance(group, dict) else ()
    return ", ".join(one["groupVersion"] for one in versions) or "another version"
