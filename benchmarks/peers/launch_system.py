"""The product: `hvd-elastic launch` over local hosts, with the script of the cluster tests and a commit each step."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.peers.hosts import GRACE_SECONDS, SCRIPTS, script_environment
from benchmarks.peers.local_system import EVENTS, Places
from hvd_elastic.local.local_cluster import LocalCluster
from hvd_elastic.local.local_environment import local_environment
from hvd_elastic.local.local_job import local_cluster, local_job, warm_up
from hvd_elastic.mpijob.contract import ENV_EVENTS, Engine
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.job_reader import read_job


@dataclass(slots=True, kw_only=True)
class LaunchHosts:
    """The product's own local hosts, which their cluster takes; here they also get SIGKILL after the grace."""

    cluster: LocalCluster
    _taken: dict[str, float] = field(default_factory=dict)
    """When a host was first seen to be taken, by UID."""

    @property
    def held(self) -> int:
        """How many hosts are there, those that are ending included."""
        return len(self.cluster.hosts)

    def want(self, count: int) -> None:
        """Set how many hosts training may use."""
        self.cluster.want(count)

    def kill(self) -> None:
        """Kill the last host that is there."""
        self.cluster.hosts[max(self.cluster.hosts)].kill()

    def tend(self, now: float) -> None:
        """Kill what is still there after the grace."""
        for host in list(self.cluster.hosts.values()):
            if host.preempted and now - self._taken.setdefault(host.uid, now) > GRACE_SECONDS:
                host.kill()


@contextmanager
def launch(folder: Path, size: int, *, engine: Engine = Engine.HOROVOD) -> Iterator[Places]:
    """Train on hosts of `hvd-elastic run`."""
    spec = _job(folder, size, engine)
    environment = {**local_environment(spec, script_environment()), ENV_EVENTS: str(folder / EVENTS)}
    with (folder / "launcher.log").open("wb") as log, local_cluster(spec, environment=environment) as cluster:
        warm_up(cluster, spec, lambda _: None)
        with local_job(spec, cluster, stdout=log.fileno(), environment=environment):
            yield LaunchHosts(cluster=cluster)


def _job(folder: Path, size: int, engine: Engine) -> JobSpec:
    command = ["python", str(SCRIPTS / "paced.py"), "--log-samples", "--stop", str(folder / "stop")]
    values = {
        "name": "days",
        "command": command,
        "workers.min": 1,
        "workers.start": size,
        "workers.max": size,
        "launcher": "launch",
        "engine": engine.value,
    }
    return read_job(None, values)
