"""CapacityBuffers: GPUs that a cluster autoscaler keeps ready, by nodes for pods that do not exist.

They count as a reserve. Training that took them would have the cluster autoscaler start the next nodes, without end.
The API: `cluster-autoscaler/apis/capacitybuffer` of kubernetes/autoscaler, and Karpenter's.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from hvd_elastic.client.connection.cluster_client import ClusterClient, Json, NotFoundError
from hvd_elastic.client.connection.known_api import CAPACITY_BUFFERS, NoSuchGroupError
from hvd_elastic.client.object_reading import ObjectReading
from hvd_elastic.decide.autoscale.forecast.optional_reading import MOST_TEMPLATES, OptionalReading
from hvd_elastic.decide.autoscale.shared_cluster import GpuNode, GpuPod, counted
from hvd_elastic.mpijob.description.object_names import object_name

MOST_CHUNKS: Final = 10_000
"""Of one buffer. Anybody who may write one may write any number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityBuffer:
    """One of them."""

    name: str
    """`NAMESPACE/NAME`."""
    chunks: int
    """Pods that it keeps room for."""
    asked: int | None
    """What its `replicas` ask for; None: nothing."""
    template: str
    """Name of the PodTemplate that says what one asks for; empty: nobody has made one yet."""

    @classmethod
    def from_json(cls, buffer: Json) -> "CapacityBuffer":
        """What its controller has made of it, and what was asked for as long as it has made nothing."""
        meta, spec, status = buffer["metadata"], buffer["spec"], buffer.get("status") or {}
        template = status.get("podTemplateRef") or spec.get("podTemplateRef") or {}
        asked = spec.get("replicas")
        asked = None if asked is None else int(asked)
        made = status.get("replicas")
        chunks = int(asked or 0) if made is None else int(made)
        return cls(
            name=f"{object_name(meta['namespace'])}/{object_name(meta['name'])}",
            chunks=max(0, min(chunks, MOST_CHUNKS)),
            asked=asked,
            template=object_name(template["name"]) if template else "",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferedPod:
    """What one chunk of a buffer asks for."""

    buffer: CapacityBuffer
    pods: tuple[GpuPod, ...]
    """Once for each resource."""


class CapacityBufferReader:
    """Reads one cluster, again and again. One caller, one thread at a time."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster
        self._reading, self._template_reading = ObjectReading("CapacityBuffer"), ObjectReading("PodTemplate")
        self._optional = OptionalReading()

    def read(self) -> Sequence[BufferedPod]:
        """Those whose template can be read."""
        buffers = self._optional.of("CapacityBuffers give", self._buffers)
        with_template = [one for one in buffers if one.template][:MOST_TEMPLATES]
        what = "PodTemplates of CapacityBuffers give"
        return [found for one in with_template for found in self._optional.of(what, partial(self._template, one))]

    def _buffers(self) -> Iterator[CapacityBuffer]:
        try:
            root = CAPACITY_BUFFERS.served_path(self._cluster)
        except NoSuchGroupError:
            return iter(())
        return self._reading.each(self._cluster.list(f"{root}/capacitybuffers"), CapacityBuffer.from_json)

    def _template(self, buffer: CapacityBuffer) -> Iterator[BufferedPod]:
        namespace = buffer.name.partition("/")[0]
        try:
            found = self._cluster.get(f"/api/v1/namespaces/{namespace}/podtemplates/{buffer.template}")
        except NotFoundError:
            return iter(())

        def pods_of(found: dict[str, Any]) -> BufferedPod:
            return BufferedPod(buffer=buffer, pods=GpuPod.each_of_template(found["template"]))

        return self._template_reading.each([found], pods_of)


def buffered_gpus(buffered: Iterable[BufferedPod], nodes: Sequence[GpuNode]) -> int:
    """GPUs that buffers keep ready on such nodes."""
    return sum(
        one.buffer.chunks * pod.gpus
        for one in buffered
        for pod in counted(one.pods, nodes)
        if any(pod.resource == node.resource and pod.placement.fits(node) for node in nodes)
    )
