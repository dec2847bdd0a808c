"""Reads what the decision needs: jobs, nodes, pods, and what inference will need."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

from hvd_elastic.client.connection.cluster_client import ClusterClient, Json
from hvd_elastic.client.job_lookup import cluster_time
from hvd_elastic.client.object_reading import ObjectReading
from hvd_elastic.client.operations.submitted_job import MPIJOB_API
from hvd_elastic.decide.autoscale.autoscaled_job import AutoscaledJob
from hvd_elastic.decide.autoscale.decision import SharedCluster
from hvd_elastic.decide.autoscale.forecast.capacity_buffers import CapacityBufferReader, buffered_gpus
from hvd_elastic.decide.autoscale.forecast.scaler_demand import coming_gpus, starting
from hvd_elastic.decide.autoscale.forecast.scaler_reader import ScalerReader
from hvd_elastic.decide.autoscale.pod_reader import GpuPodReader
from hvd_elastic.decide.autoscale.shared_cluster import GpuNode, counted
from hvd_elastic.mpijob.contract import GPU_RESOURCE


class StateReader:
    """Reads one cluster, again and again."""

    def __init__(
        self,
        cluster: ClusterClient,
        namespaces: Sequence[str] = (),
        *,
        forecast: Callable[[], int] = lambda: 0,
        own_buffer: str = "",
    ) -> None:
        """Make a reader.

        Args:
            cluster: to read.
            namespaces: of the jobs; none: all.
            forecast: GPUs that inference will soon hold, 0 if nobody knows.
            own_buffer: `NAMESPACE/NAME` of the CapacityBuffer that follows the reserve: it is no reserve of its own.
        """
        self._cluster, self._namespaces, self._forecast = cluster, tuple(namespaces), forecast
        self._pods = GpuPodReader(cluster)
        self._node_reading, self._job_reading = ObjectReading("node"), ObjectReading("MPIJob")
        self._scalers, self._buffers = ScalerReader(cluster), CapacityBufferReader(cluster)
        self._own_buffer = own_buffer

    def read(self) -> tuple[SharedCluster, float]:
        """The state, and the API server's clock in Unix seconds. Raises ClusterError if a part cannot be read.

        A decision over a part would take an unread pod's GPU for idle.
        """
        now = cluster_time(self._cluster)
        with ThreadPoolExecutor() as pool:
            pods = pool.submit(self._pods.read)
            demands = pool.submit(self._scalers.demands)
            forecast = pool.submit(self._forecast)
            buffers = pool.submit(self._buffers.read)
            jobs = self._jobs()
            nodes = self._nodes(sorted({job.resource for job in jobs} or {GPU_RESOURCE}))
        found = tuple(counted(pods.result(), nodes))
        called_for = demands.result()
        templates = counted(self._scalers.templates(starting(called_for, found)), nodes)
        buffered = buffers.result()
        own_buffer = next((one for one in buffered if one.buffer.name == self._own_buffer), None)
        inference = sum(pod.gpus for pod in found if not pod.job)
        state = SharedCluster(
            jobs=jobs,
            nodes=nodes,
            pods=found,
            buffered=buffered_gpus((one for one in buffered if one is not own_buffer), nodes),
            own_buffer=own_buffer,
            coming=max(0, forecast.result() - inference, coming_gpus(called_for, found, templates)),
        )
        return state, now

    def _nodes(self, resources: Sequence[str]) -> tuple[GpuNode, ...]:
        """Those that count, by name; each once for each of the resources that it has."""

        def read(node: Json) -> tuple[GpuNode, ...]:
            return tuple(filter(None, (GpuNode.from_json(node, resource) for resource in resources)))

        found = chain.from_iterable(self._node_reading.each(self._cluster.list("/api/v1/nodes"), read))
        return tuple(sorted(found, key=lambda node: node.name))

    def _jobs(self) -> tuple[AutoscaledJob, ...]:
        root = f"/apis/{MPIJOB_API}"
        paths = [f"{root}/namespaces/{name}/mpijobs" for name in self._namespaces] or [f"{root}/mpijobs"]
        found = ({"apiVersion": MPIJOB_API, **job} for path in paths for job in self._cluster.list(path))
        return tuple(self._job_reading.each(found, AutoscaledJob.from_json))
