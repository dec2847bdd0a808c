"""Reads the scalers of a cluster, and the templates of what they bring back from zero.

All of it is a forecast, not a part of the state: without it the autoscaler decides as if there were no scaler. So an
API that does not answer is said, once until it answers again, and left out.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Final

from hvd_elastic.client.connection.cluster_client import ClusterClient, Json, NotFoundError
from hvd_elastic.client.connection.known_api import KEDA, SCALERS, KnownApi, NoSuchGroupError
from hvd_elastic.client.object_reading import ObjectReading
from hvd_elastic.decide.autoscale.forecast.hpa_demand import hpa_demand
from hvd_elastic.decide.autoscale.forecast.optional_reading import MOST_TEMPLATES, OptionalReading
from hvd_elastic.decide.autoscale.forecast.scaled_object import scaled_object_demand
from hvd_elastic.decide.autoscale.forecast.scaler_demand import ScalerDemand
from hvd_elastic.decide.autoscale.shared_cluster import GpuPod
from hvd_elastic.mpijob.description.object_names import object_name

_TEMPLATES: Final = {"Deployment": "deployments", "StatefulSet": "statefulsets"}
"""Of `apps/v1`. What a pod of another kind will ask for is known as soon as there is one."""


@dataclass(frozen=True, slots=True)
class _Scalers:
    """One kind of scaler."""

    kind: str
    plural: str
    api: KnownApi
    demand: Callable[[Json], ScalerDemand]


_KINDS: Final = (
    _Scalers("HorizontalPodAutoscaler", "horizontalpodautoscalers", SCALERS, hpa_demand),
    _Scalers("ScaledObject", "scaledobjects", KEDA, scaled_object_demand),
)


class ScalerReader:
    """Reads one cluster, again and again. One caller, one thread at a time."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster
        self._readings = {one.kind: ObjectReading(one.kind) for one in _KINDS}
        self._template_reading = ObjectReading("template of")
        self._optional = OptionalReading()

    def demands(self) -> Sequence[ScalerDemand]:
        """What the scalers of all kinds call for."""
        return [
            demand for one in _KINDS for demand in self._optional.of(f"{one.kind}s give", partial(self._of_kind, one))
        ]

    def templates(self, workloads: Iterable[str]) -> Sequence[GpuPod]:
        """The GPUs that a pod of each workload (`NAMESPACE/KIND/NAME`) will ask for, as a pod that is not there yet."""
        readable = [one for one in workloads if _path(one)][:MOST_TEMPLATES]
        what = "templates of workloads at zero give"
        return [pod for one in readable for pod in self._optional.of(what, partial(self._template, one))]

    def _of_kind(self, kind: _Scalers) -> Iterator[ScalerDemand]:
        try:
            root = kind.api.served_path(self._cluster)
        except NoSuchGroupError:
            return iter(())
        objects = self._cluster.list(f"{root}/{kind.plural}")
        return self._readings[kind.kind].each(objects, kind.demand)

    def _template(self, workload: str) -> Iterator[GpuPod]:
        try:
            found = self._cluster.get(_path(workload))
        except NotFoundError:
            return iter(())
        return chain.from_iterable(self._template_reading.each([found], partial(_pods_of, workload)))


def _pods_of(workload: str, found: Json) -> Sequence[GpuPod]:
    return GpuPod.each_of_template(found["spec"]["template"], workload=workload)


def _path(workload: str) -> str:
    """Of the object that has the template; empty: none is known. Whoever writes a scaler writes its target's name."""
    try:
        namespace, kind, name = workload.split("/")
        return f"/apis/apps/v1/namespaces/{object_name(namespace)}/{_TEMPLATES[kind]}/{object_name(name)}"
    except (ValueError, KeyError):
        return ""
