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
    pod_start=5.9,
    first_step=1.1,
    grow=0.36,
    shrink=0.24,
    death=0.35,
    node_lost=2.7,
    node_replaced=43.0,
    gpu_free=0.3,
    bind=1.4,
    restart=1.1,
    bind_sigma=0.15,
)
"""`hvd-elastic launch`.

`grow`, `shrink`, `death`, `node_lost`: as measured, from the last step before to the first one after. `bind`: an
inference pod on an idle GPU ran 1.1 to 1.7 s after it was created; with `gpu_free`, on a GPU that training held, after
1.3 to 1.9 s. `bind_sigma`: the range of nine normal values is 2.97 standard deviations, and ln 1.7 - ln 1.1 is 0.44.
`pod_start`: GPU given back to full size took 7.0 s, of which 0.7 pass until the next pod is bound, and 0.36 in the
resize. `first_step` and `restart`: workers were Ready 1.1 s before the job trained. `node_replaced`: the
50 s until a lost node's worker trains again, less its start and its resize.
"""

STOCK: Final = replace(
    OURS,
    pod_start=1.0,
    first_step=11.1,
    grow=7.4,
    shrink=0.58,
    death=0.37,
    node_lost=30.6,
    node_replaced=float("inf"),
    gpu_free=0.1,
    restart=11.1,
)
"""The MPI Operator's `discover_hosts.sh` and plain `horovodrun`.

In favour of stock where several figures were seen: shrinking took 0.5 to 0.6 s or 30 to 87 s, a start 9 to 88 s. A pod
is Ready as soon as sshd runs; what a worker imports it imports while the others stand still
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
