"""A job that cannot change its size, in a queue of Kueue: all GPUs or none."""

from typing import Final

from benchmarks.systems.system import SIZE, System, WantedJob
from testbed.cluster import jobs, queues
from testbed.cluster.faults import STANDBY
from testbed.cluster.jobs import Job
from testbed.cluster.site import Site
from testbed.kube.kubectl import Kubectl


def _submit(site: Site, kubectl: Kubectl, wanted: WantedJob) -> Job:
    queues.open_queues(kubectl)
    description = jobs.describe(
        site,
        kubectl,
        "fixed",
        [*jobs.PACED, "--log-samples"],
        workers=jobs.workers((wanted.size, wanted.size, wanted.size)),
        node_labels={**wanted.node_labels},
        queue={"system": "kueue", "name": queues.TRAINING},
        checkpoint={"url": "file:///output/checkpoints", "every": 10},
    )
    return jobs.submit(site, kubectl, description)


KUEUE: Final = System(
    name="kueue",
    title="fixed size, evicted whole by Kueue",
    program=STANDBY,
    submit=_submit,
    installed=lambda site: queues.kueue_with_queues(site, gpus=SIZE),
    serving_queue=queues.SERVING,
)
