"""One local host: a loopback address of its own and the entry point of a worker pod, as a process group here."""

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from hvd_elastic.discovery import PodView
from hvd_elastic.mpijob.contract import ENV_READY_ADDRESS, ENV_RUN_DIR

PREEMPTED = "PreemptionByScheduler"
"""What kube-scheduler writes into a victim's DisruptionTarget condition."""


@dataclass(slots=True, kw_only=True)
class LocalHost:
    """Stands in for a worker pod. Each start is a new pod of the same name with a new UID, as in a cluster."""

    name: str
    address: str
    folder: Path
    """RUN_DIR of this host."""
    process: subprocess.Popen[bytes]
    uid: str = field(default_factory=lambda: uuid.uuid4().hex[:8])
    created: float = field(default_factory=time.time)
    ready_since: float | None = None
    """Unix seconds at which its ready port first answered; None before. The reach test checks that it still does."""
    preempted: bool = False

    @classmethod
    def start(
        cls,
        *,
        name: str,
        address: str,
        ready_port: int,
        folder: Path,
        command: Sequence[str],
        environment: Mapping[str, str],
        directory: str | None,
        log: Path,
    ) -> Self:
        """Start the entry point in `directory`, where it warms `command` up. Its output until a launcher connects goes
        to `log`.
        """
        folder.mkdir(parents=True, exist_ok=True)
        entry_point = [sys.executable, "-m", "hvd_elastic.cli", "worker", "--no-sshd", "--die-with-parent"]
        entry_point += ["--ready-port", str(ready_port), "--"]
        with log.open("ab") as output:
            process = subprocess.Popen(
                [*entry_point, *command],
                env={**environment, ENV_RUN_DIR: str(folder), ENV_READY_ADDRESS: address},
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        return cls(name=name, address=address, folder=folder, process=process)

    @property
    def gone(self) -> bool:
        """Whether the pod has ended, so that another may take its name."""
        return self.process.poll() is not None

    def preempt(self) -> None:
        """Do what the scheduler and the kubelet do to a preempted pod: set the condition, then send SIGTERM."""
        self.preempted = True
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it at once, as a lost machine would."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if not self.gone:
            os.kill(self.process.pid, number)

    def view(self) -> PodView:
        """The pod as the API server would show it."""
        return PodView(
            name=self.name,
            uid=self.uid,
            ip=self.address,
            ready=self.ready_since is not None,
            ready_since=self.ready_since or 0.0,
            created=self.created,
            phase="Failed" if self.gone else "Running",
            disruption=PREEMPTED if self.preempted else "",
        )
