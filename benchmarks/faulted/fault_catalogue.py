"""The faults: what each does to a job, how it is undone, and to which systems it cannot be done."""

import contextlib
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from benchmarks.faulted.victim import Victim
from benchmarks.systems.torchelastic import TORCHELASTIC
from testbed.cluster import pods
from testbed.cluster.faults import signal_processes
from testbed.cluster.object_store import ObjectStore

AWAY_SECONDS: Final = 20.0
"""How long a server is away, or a disk full."""
CUT_SECONDS: Final = 90.0
"""How long a node is cut off: Kubernetes takes 40 s to see that it is, and what waits for it must show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredFault:
    """A fault, and how it is measured."""

    name: str
    title: str
    inject: Callable[[Victim], object]
    undo: Callable[[Victim], object] = lambda _victim: None
    """Does nothing where nothing was injected."""
    lasts: float = 0.0
    """Seconds until it is undone."""
    shows_within: float = 5.0
    """Seconds within which it shows whatever it does, counted from when it is undone."""
    is_apart: bool = False
    """Whether it strikes a node, on which one worker stands by itself. Rank 0 stands elsewhere."""
    is_rare: bool = False
    """Whether each round strikes a job of its own, because no job suffers it often in a row. The Job controller waits
    twice as long after each lost launcher (10 s, 20 s ... 10 min; Kubernetes 1.34, `pkg/controller/job/
    backoff_utils.go`), and the node controller counts outages of the API server as the kubelets' silence."""
    in_store: bool = False
    """Whether checkpoints go to an object store."""
    not_for: Mapping[str, str] = field(default_factory=dict)
    """Systems to which it cannot be done, and why."""


def _signal(number: signal.Signals) -> Callable[[Victim], object]:
    def send(victim: Victim) -> None:
        assert signal_processes(victim.job, victim.worker, victim.system.program, number), "there was no process"

    return send


def _lose_launcher(victim: Victim) -> None:
    pods.delete(victim.job.kubectl, victim.launcher, by_force=True)


def _link(victim: Victim) -> Any:
    return victim.site.local().nodes["spot"].link


def _bring_api_server_back(victim: Victim) -> None:
    """And the operator, which ends without it, as a Deployment would."""
    machine = victim.site.local()
    if machine.daemon("kube-apiserver").alive():
        return
    machine.start_api_server()
    if victim.system is not TORCHELASTIC:
        machine.restart_mpi_operator()
        return
    operator = machine.daemon("training-operator")
    if not operator.alive():
        operator.start()


def _plug_in(victim: Victim) -> None:
    _link(victim).set(up=True)


def _store(victim: Victim) -> ObjectStore:
    assert victim.store is not None
    return victim.store


FAULTS: Final = (
    MeasuredFault(name="killed", title="a training process is killed", inject=_signal(signal.SIGKILL)),
    MeasuredFault(name="hung", title="a training process hangs (SIGSTOP)", inject=_signal(signal.SIGSTOP)),
    MeasuredFault(
        name="launcher-lost",
        title="the launcher is lost (TorchElastic: rank 0's pod)",
        inject=_lose_launcher,
        shows_within=10.0,
        is_rare=True,
    ),
    MeasuredFault(
        name="disk-full",
        title=f"the disk of the checkpoints is full for {AWAY_SECONDS:.0f} s",
        inject=lambda victim: victim.disk.fill(),
        undo=lambda victim: victim.disk.clear(),
        lasts=AWAY_SECONDS,
        not_for={"stock": "its script has no checkpoints"},
    ),
    MeasuredFault(
        name="store-away",
        title=f"the object store of the checkpoints is away for {AWAY_SECONDS:.0f} s",
        inject=lambda victim: _store(victim).leave(),
        undo=lambda victim: _store(victim).come_back(),
        lasts=AWAY_SECONDS,
        in_store=True,
        not_for={
            "stock": "its script has no checkpoints",
            TORCHELASTIC.name: "its script writes its checkpoints to a file system",
        },
    ),
    MeasuredFault(
        name="cut",
        title=f"for {CUT_SECONDS:.0f} s nothing arrives that a worker's node says, and it hears all",
        inject=lambda victim: _link(victim).set_pods_mute(mute=True),
        undo=lambda victim: _link(victim).set_pods_mute(mute=False),
        lasts=CUT_SECONDS,
        is_apart=True,
    ),
    MeasuredFault(
        name="node-lost",
        title=f"a worker's node is cut off for {CUT_SECONDS:.0f} s",
        inject=lambda victim: _link(victim).set(up=False),
        undo=_plug_in,
        lasts=CUT_SECONDS,
        is_apart=True,
    ),
    MeasuredFault(
        name="api-server-away",
        title=f"the API server is away for {AWAY_SECONDS:.0f} s",
        inject=lambda victim: victim.site.local().stop_api_server(),
        undo=_bring_api_server_back,
        lasts=AWAY_SECONDS,
        is_rare=True,
    ),
)


@contextlib.contextmanager
def injected(fault: MeasuredFault, victim: Victim) -> Iterator[None]:
    """Do it; whatever happens meanwhile, it does not stay."""
    try:
        fault.inject(victim)
        yield
    finally:
        fault.undo(victim)
