"""Jobs in a queue of Kueue: one that cannot change its size, all GPUs or none, and the product's, worker by worker."""

from dataclasses import replace
from typing import Final

from benchmarks.systems.product import LAUNCH
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
        queue={"system": "kueue", "name": queues.TRAINING, "whole": True},
        checkpoint={"url": "file:///output/checkpoints", "every": 10},
    )
    return jobs.submit(site, kubectl, description)


def _submit_elastic(site: Site, kubectl: Kubectl, wanted: WantedJob) -> Job:
    queues.open_queues(kubectl)
    queue = {"system": "kueue", "name": queues.TRAINING}
    return LAUNCH.submit(site, kubectl, replace(wanted, keys={**wanted.keys, "queue": queue}))


ELASTIC_KUEUE: Final = System(
    name="elastic-kueue",
    title="`hvd-elastic`, launcher `launch`, in a queue of Kueue",
    program=STANDBY,
    submit=_submit_elastic,
    installed=lambda site: queues.kueue_with_queues(site, gpus=SIZE),
    serving_queue=queues.SERVING,
    serving_class=queues.SERVING_CLASS,
)
KUEUE: Final = System(
    name="kueue",
    title="fixed size, evicted whole by Kueue",
    program=STANDBY,
    submit=_submit,
    installed=lambda site: queues.kueue_with_queues(site, gpus=SIZE),
    serving_queue=queues.SERVING,
)
