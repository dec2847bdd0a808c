"""The product with its two launchers and its two engines: what `hvd-elastic generate` makes."""

from functools import partial
from typing import Final

from benchmarks.systems.system import System, WantedJob
from hvd_elastic.mpijob.contract import Engine
from testbed.cluster import jobs
from testbed.cluster.faults import STANDBY
from testbed.cluster.jobs import Job
from testbed.cluster.site import Site
from testbed.kube.kubectl import Kubectl


def _submit(launcher: str, engine: Engine, site: Site, kubectl: Kubectl, wanted: WantedJob) -> Job:
    description = jobs.describe(
        site,
        kubectl,
        "elastic",
        [*jobs.PACED, "--log-samples", *wanted.options],
        launcher={"kind": launcher, "cpu": "100m"},
        engine=engine.value,
        workers=jobs.workers((1, wanted.start, wanted.size)),
        node_labels={**wanted.node_labels},
        **wanted.keys,
    )
    return jobs.submit(site, kubectl, description, shared=wanted.shared)


HOROVODRUN: Final = System(
    name="horovodrun",
    title="`hvd-elastic`, launcher `horovodrun`",
    program=STANDBY,
    submit=partial(_submit, "horovodrun", Engine.HOROVOD),
)
LAUNCH: Final = System(
    name="launch",
    title="`hvd-elastic`, launcher `launch`",
    program=STANDBY,
    submit=partial(_submit, "launch", Engine.HOROVOD),
)
LAUNCH_TORCH: Final = System(
    name="launch-torch",
    title="`hvd-elastic`, launcher `launch`, engine `torch`",
    program=STANDBY,
    submit=partial(_submit, "launch", Engine.TORCH),
)
