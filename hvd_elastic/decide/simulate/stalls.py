"""What events cost in each way, in seconds, as it was measured: the defaults of `simulate`.

The figures of ours and of stock are medians of benchmarks/cluster.py on a real Kubernetes (docs/performance.md). Two
cores ran all of it, so a worker's start, which is nearly all import of torch, is an upper bound for a real cluster.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from hvd_elastic.decide.simulate.workload import Stalls, Way

OURS: Final = Stalls(
    pod_start=3.0,
    first_step=1.9,
    grow=0.19,
    shrink=0.15,
    death=0.24,
    node_lost=2.3,
    node_replaced=53.0,
    gpu_free=0.5,
    bind=0.8,
    restart=1.9,
    bind_sigma=0.16,
)
"""`hvd-elastic launch`.

`grow`, `shrink`, `death`, `node_lost`: as measured, from the last step before to the first one after. `bind`: an
inference pod on an idle GPU ran 0.79 s after it was created; with `gpu_free`, on a GPU that training held, after
1.28 s. `bind_sigma`: of forty asks on a GPU that training held (benchmarks/bursts.py) p99 was 1.44 times p50, which is
2.33 standard deviations. `pod_start`: GPU given back to full size took 3.6 s, of which 0.45 pass until the next pod is
bound, and `grow` in the resize. `first_step` and `restart`: the job trained 6.2 s after it was applied; its workers
were bound after 1.3 s. `node_replaced`: the 56 s until a lost node's worker trains again, less its start and its
resize.
"""

STOCK: Final = replace(
    OURS,
    pod_start=1.0,
    first_step=7.2,
    grow=7.4,
    shrink=0.54,
    death=0.3,
    node_lost=30.3,
    node_replaced=float("inf"),
    restart=7.2,
)
"""The MPI Operator's `discover_hosts.sh` and plain `horovodrun`.

In favour of stock where several figures were seen: a start took 9 or 86 s, and in other runs shrinking took 30 s or
more. A pod is Ready as soon as sshd runs; what a worker imports it imports while the others stand still
(`grow`, median of runs with a discovery script that works) or before the first step (9.6 s after the job was applied,
1.3 s of them until its pods are bound). `node_replaced`: the pod on a lost node stays in Terminating, and nobody
deletes it.
"""

RESTARTED: Final = replace(OURS, restart=30.0)
"""A job that begins anew from its checkpoint: 30 s is what the simulators of Pollux and of Sia
take a restart to cost, and the start of pods comes on top. All else as ours."""

MEASURED: Final[Mapping[Way, Stalls]] = MappingProxyType(
    {Way.STATIC: RESTARTED, Way.STOCK: STOCK, Way.RESTART: RESTARTED, Way.OURS: OURS, Way.ORACLE: OURS}
)
"""By way. The oracle uses `bind` alone."""
