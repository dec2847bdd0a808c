"""torch's own elastic agent, and torchft.

*torchrun*: an agent on each host with the c10d rendezvous, and the script that the cluster's PyTorchJob runs, with a
checkpoint each ten steps. The time-outs are torch's own.

*torchft*: a replica group on each host under torchrun, as torchft's README starts it, and a lighthouse with the options
that the README gives it. A group that comes gets the weights from another one; nothing is written to disk.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.peers.environments import installed
from benchmarks.peers.hosts import SCRIPTS, beside, free_port, hosts, script_environment
from benchmarks.peers.local_system import EVENTS, Places


@contextmanager
def torchrun(folder: Path, size: int) -> Iterator[Places]:
    """Train under torch's elastic agents. The first host, which always stays, holds the rendezvous."""
    rendezvous = ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{free_port()}", "--rdzv-id=days"]
    sizes = [f"--nnodes=1:{size}", "--nproc-per-node=1", "--local-addr=127.0.0.1", "--max-restarts=1000"]
    script = [str(SCRIPTS / "torchelastic.py"), f"--events={folder / EVENTS}", f"--stop={folder / 'stop'}"]
    script += [f"--checkpoint={folder / 'checkpoint.pt'}"]

    def agent(place: int) -> tuple[Sequence[str], Mapping[str, str]]:
        command = [sys.executable, "-m", "torch.distributed.run", *rendezvous, *sizes]
        # All addresses here are this machine's: without it, whichever agent comes first holds the store.
        return [*command, f"--rdzv-conf=is_host={int(place == 0)}", *script], script_environment()

    with hosts(agent, size, folder) as found:
        yield found


@contextmanager
def torchft(folder: Path, size: int) -> Iterator[Places]:
    """Train with torchft."""
    python, port = installed("torchft"), free_port()
    options = ["--min_replicas=1", "--quorum_tick_ms=100", "--join_timeout_ms=10000", f"--bind=[::]:{port}"]
    lighthouse = [str(python.with_name("torchft_lighthouse")), *options]
    environment = {**script_environment(), "TORCHFT_LIGHTHOUSE": f"http://localhost:{port}"}
    script = [str(Path(__file__).with_name("torchft_script.py")), f"--events={folder / EVENTS}"]

    def group(place: int) -> tuple[Sequence[str], Mapping[str, str]]:
        agent = [str(python), "-m", "torch.distributed.run", f"--master_port={free_port()}", "--nnodes=1"]
        of_group = {"REPLICA_GROUP_ID": str(place), "NUM_REPLICA_GROUPS": str(size)}
        return [*agent, "--nproc_per_node=1", *script], {**environment, **of_group}

    with beside(lighthouse, environment, folder / "lighthouse.log"), hosts(group, size, folder) as found:
        yield found
