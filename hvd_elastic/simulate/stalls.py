"""What events cost in each way, in seconds, as it was measured: the defaults of `simulate`.

The figures of ours and of stock are medians of benchmarks/cluster.py on a real Kubernetes (docs/performance.md). Two
cores ran all of it, so a worker's start, which is nearly all import of torch, is an upper bound for a real cluster.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from hvd_elastic.simulate.workload import Stalls, Way

OURS: Final = Stalls(
    pod_start=5.4,
    first_step=1.1,
    grow=0.34,
    shrink=0.24,
    death=0.42,
    node_lost=10.2,
    node_replaced=139.0,
    gpu_free=0.7,
    bind=1.1,
    restart=1.1,
    bind_spread=0.8,
)
"""`hvd-elastic launch`.

`grow`, `shrink`, `death`, `node_lost`: as measured, from the last step before to the first one after. `gpu_free` and
`bind`: the 1.8 s from an inference pod's creation until it runs, parted where the worker's pod has ended and the
scheduler binds (0.6 to 0.8 s). `bind_spread`: 1.4 to 2.2 s were seen in all. `pod_start`: GPU given back to full size
took 6.4 s, of which 0.7 pass until the next pod is bound, and 0.34 in the resize. `first_step` and `restart`: workers
were Ready after 8.7 s, and the job trained after 9.8 s. `node_replaced`: the 145 s until a lost node's worker trains
again, less its start and its resize.
"""

STOCK: Final = replace(
    OURS,
    pod_start=1.0,
    first_step=11.1,
    grow=7.4,
    shrink=0.58,
    death=0.34,
    node_lost=30.6,
    node_replaced=float("inf"),
    gpu_free=0.6,
    restart=11.1,
)
"""The MPI Operator's `discover_hosts.sh` and plain `horovodrun`.

Where several figures were seen, the median, which is in favour of stock: one shrinking of four took 30.5 s, and one
start of three 84 s. A pod is Ready as soon as sshd runs; what a worker imports it imports while the others stand still
(`grow`, median of runs with a discovery script that works) or before the first step (13.1 s after the job was applied,
2 s of them until pods run). `node_replaced`: the pod on a lost node stays in Terminating, and nobody deletes it.
"""

RESTARTED: Final = replace(OURS, restart=30.0)
"""A job that begins anew from its checkpoint: 30 s is what the simulators of Pollux and of Sia
take a restart to cost, and the start of pods comes on top. All else as ours."""

MEASURED: Final[Mapping[Way, Stalls]] = MappingProxyType(
    {Way.STATIC: RESTARTED, Way.STOCK: STOCK, Way.RESTART: RESTARTED, Way.OURS: OURS, Way.ORACLE: OURS}
)
"""By way. The oracle uses `bind` alone."""
