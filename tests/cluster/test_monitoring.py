"""The dashboard over a real job: a real Prometheus scrapes its pods by its own monitor while it is preempted."""

import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from hvd_elastic.mpijob.contract import Role
from hvd_elastic.setup.monitoring.dashboard_panels import dashboard_rows
from testbed.cluster import inference
from testbed.cluster.faults import kill_training
from testbed.cluster.pods import pod
from testbed.cluster.site import Site
from testbed.cluster.standing import BOTH_LAUNCHERS, DURABLE, SIZE, start
from testbed.cluster.timeline import Timeline
from testbed.debian_programs import debian_program
from testbed.kube import store, waiting
from testbed.kube.kubectl import Kubectl
from tests.cluster.pod_monitor import TellerOfPods, scrape_configs
from tests.hvd_elastic.setup.monitoring.prometheus import Prometheus, asked, is_idle, serving
from tests.mpijob import modules

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(480, func_only=True)]

GPUS: Final = frozenset(panel.title for row in dashboard_rows() if row.title == "GPUs" for panel in row.panels)
"""No pod of the test cluster has a GPU, nor has a node DCGM's exporter: NVML is not there, and nobody tells of any."""
LAUNCH_ALONE: Final = frozenset({"World size: allowed", "Resizes by cause", "Length of a pause"})
"""What only `launcher: launch` counts (docs/monitoring.md)."""
MONITORS: Final = "podmonitors.monitoring.coreos.com"


@pytest.fixture
def pod_monitors(cluster: Site) -> None:
    """The API server knows PodMonitors. It goes on knowing them, for another test may have one."""
    cluster.kubectl("apply", "--server-side", "-f", str(modules.POD_MONITOR.local()))
    cluster.kubectl("wait", "--for=condition=Established", f"crd/{MONITORS}", "--timeout=30s")


@pytest.fixture
def teller(namespace: Kubectl) -> Iterator[TellerOfPods]:
    served = TellerOfPods(namespace)
    yield served
    served.stop()


@pytest.mark.usefixtures("pod_monitors")
@pytest.mark.parametrize("launcher", BOTH_LAUNCHERS)
def test_every_panel_of_the_dashboard_shows_a_preemption(
    cluster: Site, namespace: Kubectl, timeline: Timeline, teller: TellerOfPods, launcher: str, tmp_path: Path
) -> None:
    cluster.local()  # its pods are reached from here
    job = start(cluster, namespace, launcher, checkpoint=DURABLE, monitor=True)
    monitor = namespace.get(MONITORS, job.name)
    others = {"job_name": "kube-state-metrics", "static_configs": [{"targets": [teller.address]}]}
    with serving(tmp_path, [*scrape_configs(monitor, f"http://{teller.address}/targets"), others]) as prometheus:
        began = time.time()
        job.wait_size(SIZE)
        waiting.until("all pods are scraped", lambda: scraped(prometheus) == SIZE + 1, within_seconds=60)

        timeline.mark("two GPUs for inference, and eight that nobody has")
        load = inference.deploy(cluster, namespace)
        load.scale(2)
        namespace.apply([waiting_pod(cluster)])
        job.wait_size(SIZE - 2)
        load.wait(2)
        back = timeline.mark("given back")
        load.scale(0)
        job.wait_size(SIZE, since=back)
        killed = timeline.mark("kill -9")
        assert kill_training(job, job.pods(Role.WORKER)[1]["metadata"]["name"])
        job.wait_smaller(SIZE, since=killed)
        job.wait_size(SIZE, since=killed)

        may_be_empty = GPUS | (LAUNCH_ALONE if launcher == "horovodrun" else frozenset())
        waiting.until(
            "all other panels show something",
            lambda: empty(prometheus, began) <= may_be_empty,
            within_seconds=90,
            every_seconds=2,
            seen=lambda: str(sorted(empty(prometheus, began) - may_be_empty)),
        )
        assert empty(prometheus, began) == may_be_empty, "a panel shows what it cannot"
        ports = advised(prometheus)
    assert ports == {"metrics", "metrics-0"} | ({"metrics-launch"} if launcher == "launch" else set())
    job.finish()


def waiting_pod(site: Site) -> dict[str, Any]:
    """Inference that finds no node, whoever gives way to it."""
    image = store.PAUSE_IMAGE if site.machine else site.image
    return pod("waits", image=image, selector={}, priority="inference-pc", gpus=64)


def scraped(prometheus: Prometheus) -> int:
    """How many pods of the job have answered."""
    up = {target["labels"]["pod"] for target in prometheus.targets() if target["health"] == "up" and _of_job(target)}
    return len(up)


def empty(prometheus: Prometheus, since: float) -> frozenset[str]:
    """The panels of which a query had no answer in all that time, with its line's name where others had one."""
    found = set()
    for panel in (panel for row in dashboard_rows() for panel in row.panels):
        answers = [_has_answer(prometheus, query.expression, since) for query in panel.queries]
        if not any(answers):
            found.add(panel.title)
        else:
            lines = (query.legend.rpartition("}} ")[2] for query in panel.queries)
            found |= {f"{panel.title}: {line}" for line, has_one in zip(lines, answers, strict=True) if not has_one}
    return frozenset(found)


def _has_answer(prometheus: Prometheus, query: str, since: float) -> bool:
    series = prometheus.query_range(asked(query), since, time.time())
    return bool(series) and not is_idle(query, series)


def advised(prometheus: Prometheus) -> set[str]:
    """The monitor's ports, once promtool finds nothing to complain of in what each pod serves there."""
    promtool = debian_program("promtool", "prometheus", "promtool")
    ports = set()
    for target in filter(_of_job, prometheus.targets()):
        with urllib.request.urlopen(target["scrapeUrl"], timeout=10) as answer:
            text = answer.read()
        done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, timeout=60, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b""), target["scrapeUrl"]
        ports.add(target["labels"]["endpoint"])
    return ports


def _of_job(target: Any) -> bool:
    return "endpoint" in target["labels"]
