"""Ray Train: a node of Ray on each host (`ray start --block`, which a worker pod of KubeRay runs), and its driver.

The driver and Ray's head node are beside the hosts, on what no platform takes. Ray Train looks for new nodes each 60 s
by default. A window is compressed to minutes, so here it does each RESIZE_SECONDS.

A host that gets SIGTERM ends its workers at once and tells the head. `ray.train.get_preemption_info()` speaks only of
nodes that something has asked Ray to drain, which neither Kubernetes nor KubeRay does with a pod that is preempted.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.peers.environments import installed
from benchmarks.peers.hosts import beside, free_port, hosts, script_environment, wait_listening
from benchmarks.peers.local_system import EVENTS, Places

RESIZE_SECONDS: Final = 2.0
STORE_BYTES: Final = 100_000_000
"""Of a node's object store. By default it takes 30% of the machine's memory, for each of the nodes."""


@contextmanager
def ray_train(folder: Path, size: int) -> Iterator[Places]:
    """Train with Ray Train."""
    python, port = installed("ray-train"), free_port()
    environment = {**script_environment(), "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
    start = [str(python.with_name("ray")), "start", "--block", f"--object-store-memory={STORE_BYTES}"]
    head = [*start, "--head", f"--port={port}", "--num-cpus=0", "--include-dashboard=false"]
    node = [*start, f"--address=127.0.0.1:{port}", "--num-cpus=1"]
    script = [str(Path(__file__).with_name("ray_train_script.py")), f"--address=127.0.0.1:{port}", f"--workers={size}"]
    paths = [f"--storage={folder / 'storage'}", f"--events={folder / EVENTS}", f"--resize-seconds={RESIZE_SECONDS}"]
    with beside(head, environment, folder / "head.log"):
        wait_listening(port)
        with (
            hosts(lambda _: (node, environment), size, folder) as found,
            beside([str(python), *script, *paths], environment, folder / "driver.log"),
        ):
            yield found
