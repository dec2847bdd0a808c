"""Random sequences of events, with real processes: hosts come, go and are replaced; processes are killed, hang and go
on. After each event the job still runs, no step is lost, and in the end the wanted world trains.
"""

import contextlib
import os
import signal
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import Phase as Phases
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from testbed.local.harness import Job

pytestmark = pytest.mark.process

SAFE = "h2-1"
"""The one host that nothing happens to, so that the state survives: a job that loses it all must end. Not rank 0."""


class Machine(RuleBasedStateMachine):
    """Whatever happens to the other hosts, SAFE goes on training."""

    @initialize()
    def begin(self) -> None:
        self.hung: set[int] = set()
        self.folder = tempfile.TemporaryDirectory()
        self.job = Job(Path(self.folder.name), step_seconds=0.005)
        self.made = 3
        self.names = ["h1-1", SAFE, "h3-1"]
        self.job.hosts(*self.names)
        flags = ["--min-np", "1", "--max-np", "5", "--hang-timeout", "2", "--gloo-timeout-seconds", "1"]
        self.job.launch("-np", "3", *flags)
        self.job.trains(*(f"{name}:0" for name in self.names))

    @precondition(lambda self: len(self.names) < 5)
    @rule(first=st.booleans())
    def add(self, first: bool) -> None:
        self.made += 1
        self.names.insert(0 if first else len(self.names), f"h{self.made}-1")
        self.job.hosts(*self.names)

    @precondition(lambda self: len(self.names) > 1)
    @rule(index=st.integers(0, 10))
    def remove(self, index: int) -> None:
        self.names.pop(self._other(index))
        self.job.hosts(*self.names)

    @precondition(lambda self: len(self.names) > 1)
    @rule(index=st.integers(0, 10))
    def replace(self, index: int) -> None:
        self._replace(self._other(index))

    @precondition(lambda self: len(self.names) > 1)
    @rule(index=st.integers(0, 10), known=st.booleans())
    def kill(self, index: int, known: bool) -> None:
        """The entry point starts another standby, which is another host: at once if `known`, else at the end."""
        index = self._other(index)
        self._signal(index, signal.SIGKILL)
        if known:
            self._replace(index)

    @precondition(lambda self: len(self.names) > 1)
    @rule(index=st.integers(0, 10))
    def hang(self, index: int) -> None:
        self.hung |= self._signal(self._other(index), signal.SIGSTOP)

    @rule()
    def recover(self) -> None:
        for pid in self.hung:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self.hung.clear()

    @rule(steps=st.integers(1, 10))
    def train(self, steps: int) -> None:
        """It goes on stepping, whatever has happened."""
        before = len(self.job.events("step", f"{SAFE}:0"))
        self.job.until(lambda: len(self.job.events("step", f"{SAFE}:0")) >= before + steps, "more steps")

    def _other(self, index: int) -> int:
        others = [at for at, name in enumerate(self.names) if name != SAFE]
        return others[index % len(others)]

    def _signal(self, index: int, number: int) -> set[int]:
        started = self.job.events("started", f"{self.names[index]}:0")
        with contextlib.suppress(ProcessLookupError):
            if started:
                os.kill(started[-1]["pid"], number)
                return {started[-1]["pid"]}
        return set()

    def _replace(self, index: int) -> None:
        pod, generation = self.names[index].split("-")
        self.names[index] = f"{pod}-{int(generation) + 1}"
        self.job.hosts(*self.names)

    def teardown(self) -> None:
        if not hasattr(self, "job"):
            return
        try:
            self.recover()
            for index, name in enumerate(self.names):
                # A host that lost a process comes back as a new one.
                if name in self.job.status()["blacklisted"]:
                    self._replace(index)
            self._train_all_in_the_end()
            self.job.check_no_step_was_lost()
        finally:
            self.job.close()
            assert not self.job.left()
            self.folder.cleanup()

    def _train_all_in_the_end(self) -> None:
        def replaced() -> bool:
            for index, name in enumerate(self.names):
                if name in self.job.status()["blacklisted"]:
                    self._replace(index)
            last = self.job.events("step")[-3 * len(self.names) :]
            return {e["name"] for e in last} == {f"{name}:0" for name in self.names} and last[-1]["size"] == len(
                self.names
            )

        self.job.until(replaced, f"training on {self.names}")


TestJob = Machine.TestCase
TestJob.settings = settings(
    max_examples=int(os.environ.get("LAUNCH_MACHINE_EXAMPLES", "12")),
    stateful_step_count=10,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phases.explicit, Phases.generate],
)
