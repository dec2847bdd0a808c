"""What a launch is asked to do."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path

from hvd_elastic.mpijob.contract import ENV_RUN_DIR, RUN_DIR
from hvd_elastic.mpijob.problems import InvalidInputError
from hvd_elastic.priorityclasses.problem import Problem


class OnError(StrEnum):
    """What happens when a script ends with a code of its own (1 to 125)."""

    END = "end"
    """The job ends at once with that code: the same error would come back on any host."""
    RESTART = "restart"
    """As horovodrun: the host is blacklisted and the others go on from the last commit."""


def _run_dir() -> Path:
    return Path(os.environ.get(ENV_RUN_DIR) or RUN_DIR)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSettings:
    """One launch. The fields up to `verbose`, but for `sizes`, are horovodrun's flags, with the same meanings."""

    command: tuple[str, ...]
    """The worker's command, as an argument list; it is run on every host."""
    num_proc: int
    """Processes that must fit before training starts."""
    min_num_proc: int | None = None
    """Processes below which training stands still; `num_proc` where it is not set."""
    max_num_proc: int | None = None
    """Processes above which hosts are left unused; unbounded where it is not set."""
    sizes: tuple[int, ...] = ()
    """The only numbers of processes that may train together; any where it is empty. Hosts beyond are left unused."""
    slots_per_host: int | None = None
    """For lines of the discovery script that name no number of slots."""
    host_discovery_script: str | None = None
    """A shell command that prints `HOST:SLOTS` lines. RUN_DIR/discover-hosts means the snapshot beside it."""
    hosts: str | None = None
    """`a:2,b:2`: hosts that never change."""
    network_interfaces: tuple[str, ...] = ()
    """The first one carries Gloo and the rendezvous. Default: the one that leads to the first host."""
    blacklist_cooldown_range: tuple[int, int] | None = None
    """Seconds; without it a failed host never returns under its name."""
    elastic_timeout_seconds: float | None = None
    """How long fewer than min processes may fit before the job ends. None: any time, because being preempted for hours
    is no failure."""
    reset_limit: int | None = None
    """Worlds after the first one; None: any number."""
    gloo_timeout_seconds: int | None = None
    """How long a Gloo operation waits for a silent peer. Default: HOROVOD_GLOO_TIMEOUT_SECONDS, else 10, so that the
    survivors of a lost host go on within 12 s. Horovod's own default is 30."""
    start_timeout_seconds: float = 120.0
    """How long processes that hold state wait at the barrier for a newcomer."""
    ssh_port: int | None = None
    ssh_identity_file: str | None = None
    output_filename: str | None = None
    """A folder: each process also writes to rank.N/stdout and rank.N/stderr there."""
    prefix_timestamp: bool = False
    verbose: bool = False

    run_dir: Path = field(default_factory=_run_dir)
    """The launcher's own files: snapshot, status, ssh control sockets, records of its processes."""
    local_hosts: Path | None = None
    """Hosts are folders in this one, by pod name; commands are run on this machine, without ssh."""
    always_ssh: bool = False
    """Use ssh for this machine's own addresses, too."""
    on_error: OnError = OnError.END
    hang_timeout_seconds: float = 600.0
    """How long a member that lives, but neither asks for a place nor ends, may keep the others waiting. One that does
    not even answer, because it is stopped, may do so for 10 s. The default is that of torch.distributed."""
    settle_seconds: float = 0.5
    """At the start: how long the list of hosts must stay unchanged before fewer than max processes are enough. A host
    that comes a moment late would cost a resize."""
    discovery_seconds: float = 1.0
    """Pause between two runs of a discovery script."""
    discovery_timeout_seconds: float = 5.0
    """A discovery script that takes longer is killed, and the hosts stay as they are."""
    metrics_port: int | None = None
    """Serve Prometheus metrics and the status as JSON; off where it is not set. 0: any free port."""

    @property
    def minimum(self) -> int:
        """Processes below which training stands still."""
        return self.num_proc if self.min_num_proc is None else self.min_num_proc

    def check(self) -> None:
        """Raises InvalidInputError with every problem."""
        problems = tuple(self._problems())
        if problems:
            raise InvalidInputError(problems)

    def _problems(self) -> Iterator[Problem]:
        if not self.command:
            yield Problem(path="COMMAND", value="", what="is missing", way_out="end the line with the worker's command")
        yield from self._size_problems()
        if (self.host_discovery_script is None) == (self.hosts is None):
            yield Problem(
                path="--host-discovery-script",
                value=self.host_discovery_script,
                what="give exactly one of it and -H",
            )
        yield from self._range_problems()
        if self.metrics_port is not None and find_spec("prometheus_client") is None:
            yield Problem(
                path="--metrics-port",
                value=self.metrics_port,
                what="needs prometheus_client, which is not installed",
                way_out="pip install 'hvd-elastic[train]'",
            )

    def _size_problems(self) -> Iterator[Problem]:
        for name, value in (("-np", self.num_proc), ("--min-np", self.minimum)):
            if value < 1:
                yield Problem(path=name, value=value, what="is below 1")
        if self.minimum > self.num_proc:
            yield Problem(path="--min-np", value=self.minimum, what=f"is above -np {self.num_proc}")
        if self.max_num_proc is not None and self.max_num_proc < self.num_proc:
            yield Problem(path="--max-np", value=self.max_num_proc, what=f"is below -np {self.num_proc}")
        for name, size in (("-np", self.num_proc), ("--min-np", self.minimum), ("--max-np", self.max_num_proc)):
            if self.sizes and size is not None and size not in self.sizes:
                yield Problem(path=name, value=size, what=f"is not in --sizes {','.join(map(str, self.sizes))}")
        if self.slots_per_host is not None and self.slots_per_host < 1:
            yield Problem(path="--slots-per-host", value=self.slots_per_host, what="is below 1")

    def _range_problems(self) -> Iterator[Problem]:
        if self.blacklist_cooldown_range is not None:
            low, high = self.blacklist_cooldown_range
            if not 1 <= low <= high <= 3600:
                yield Problem(
                    path="--blacklist-cooldown-range",
                    value=f"{low} {high}",
                    what="is not a range within 1 and 3600 seconds",
                )
        if self.reset_limit is not None and self.reset_limit < 0:
            yield Problem(path="--reset-limit", value=self.reset_limit, what="is below 0")
        for name, seconds in (
            ("--elastic-timeout", self.elastic_timeout_seconds),
            ("--start-timeout", self.start_timeout_seconds),
            ("--hang-timeout", self.hang_timeout_seconds),
            ("--gloo-timeout-seconds", self.gloo_timeout_seconds),
        ):
            if seconds is not None and seconds <= 0:
                yield Problem(path=name, value=seconds, what="is not above 0")
