"""Ray Train: a node of Ray on each host (`ray start --block`, which a worker pod of KubeRay runs), and its driver.

The driver and Ray's head node are beside the hosts, on what no platform takes. Of what Ray 2.60 does by itself, these
are changed, each in its favour:

- It looks for new nodes each 60 s. A window is compressed to minutes, so here it does each RESIZE_SECONDS.
- A node that gets SIGTERM drains for 30 s, and its workers go on training: `Node._drain_node_before_shutdown` in
  ray/_private/node.py. That is all the grace that a pod has, and inference waits for it. Here it is DRAIN_SECONDS, in
  which Ray Train, which looks each second instead of each five, makes a checkpoint.
- Checkpoints are a hundred steps apart. Its controller takes what workers report each 2 s, and they wait for it when
  they are faster (`TrainContext._wait_then_report`): with one each ten steps of 50 ms, 1.5 s of every 2.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.peers.environments import installed
from benchmarks.peers.hosts import beside, free_port, hosts, script_environment
from benchmarks.peers.local_system import EVENTS, NeverTrainedError, Places

RESIZE_SECONDS: Final = 2.0
DRAIN_SECONDS: Final = 5
START_SECONDS: Final = 240.0
STORE_BYTES: Final = 100_000_000
"""Of a node's object store. By default it takes 30% of the machine's memory, for each of the nodes."""


@contextmanager
def ray_train(folder: Path, size: int) -> Iterator[Places]:
    """Train with Ray Train."""
    python, port = installed("ray-train"), free_port()
    environment = {
        **script_environment(),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "disabled",
        "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": str(DRAIN_SECONDS),
        "RAY_TRAIN_PREEMPTION_POLL_INTERVAL_S": "1",
    }
    start = [str(python.with_name("ray")), "start", "--block", f"--object-store-memory={STORE_BYTES}"]
    head = [*start, "--head", f"--port={port}", "--num-cpus=0", "--include-dashboard=false"]
    node = [*start, f"--address=127.0.0.1:{port}", "--num-cpus=1"]
    script = [str(Path(__file__).with_name("ray_train_script.py")), f"--address=127.0.0.1:{port}", f"--workers={size}"]
    paths = [f"--storage={folder / 'storage'}", f"--events={folder / EVENTS}", f"--resize-seconds={RESIZE_SECONDS}"]
    with beside(head, environment, folder / "head.log"):
        _wait_started(folder / "head.log")
        with (
            hosts(lambda _: (node, environment), size, folder) as found,
            beside([str(python), *script, *paths], environment, folder / "driver.log"),
        ):
            yield found


def _wait_started(log: Path) -> None:
    """Wait until the head node is registered: a driver that comes earlier finds no node."""
    deadline = time.monotonic() + START_SECONDS
    while "Ray runtime started" not in log.read_text(errors="replace"):
        if time.monotonic() > deadline:
            raise NeverTrainedError(f"Ray's head node did not start within {START_SECONDS:g} s: see {log}")
        time.sleep(0.05)
