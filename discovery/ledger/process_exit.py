"""How the last training process of a worker ended: what its PID 1 tells on the ready port, and the ledger's words.

PID 1 is the only witness for both launchers. Its own words are numbers, because anything may listen where a worker is
expected: what is not of this form is not known.
"""

import json
import signal
from dataclasses import asdict, dataclass
from typing import Final

from hvd_elastic.mpijob.contract import Exit
from hvd_elastic.system.untrusted_values import finite_number, whole_number

_CODES: Final = range(256)
_SIGNALS: Final = range(128 + 1, 128 + signal.NSIG)
_STEPS: Final = range(-1, 10**18)
_MAX_SECONDS: Final = 10.0**9
_OOM_WORDS: Final = {True: ": out of memory", False: "", None: "; whether for want of memory is not known"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessExit:
    """The end of one training process. The pod is still there."""

    seconds: float
    """How long ago."""
    code: int
    """As a shell reports it: 128 + the number of a signal."""
    hung: bool = False
    """Whether it was stopped (SIGSTOP) when it was ended."""
    told: bool = False
    """Whether its launcher had told it to end, or was gone."""
    step: int = -1
    """The last step in its heartbeat, at most a second old then; -1: it had none."""
    oom: bool | None = None
    """Whether the kernel has killed it for want of memory; None: not known, as on cgroup v1."""

    @property
    def is_loss(self) -> bool:
        """Whether training has lost it. One that left because it was told to is none."""
        return self.code != Exit.REMOVED

    @property
    def is_unasked(self) -> bool:
        """Whether nobody has ended it, and it has not ended well."""
        return self.hung or not (self.told or self.code in {Exit.OK, Exit.REMOVED, Exit.HOST_CHANGE})

    @property
    def words(self) -> str:
        """`killed by SIGKILL: out of memory`, `hung`, `exit code 3`."""
        if self.hung:
            return "hung"
        if self.told:
            return "ended by its launcher"
        if self.code == Exit.HOST_CHANGE:
            return "its rendezvous was gone"
        if self.code == 128 + signal.SIGKILL:
            return f"killed by SIGKILL{_OOM_WORDS[self.oom]}"
        return _signal_words(self.code - 128) if self.code in _SIGNALS else f"exit code {self.code}"

    def to_json(self) -> bytes:
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, value: object) -> "ProcessExit | None":
        """None if the value is of another form, as that of a worker in which no process has ended."""
        document = value if isinstance(value, dict) else {}
        seconds = finite_number(document.get("seconds"), least=0, below=_MAX_SECONDS)
        code, step = whole_number(document.get("code"), _CODES), whole_number(document.get("step", -1), _STEPS)
        if seconds is None or code is None or step is None:
            return None
        hung, told, oom = document.get("hung") is True, document.get("told") is True, document.get("oom")
        oom = oom if isinstance(oom, bool) else None
        return cls(seconds=seconds, code=code, hung=hung, told=told, step=step, oom=oom)


def _signal_words(number: int) -> str:
    try:
        return f"killed by {signal.Signals(number).name}"
    except ValueError:
        return f"killed by signal {number}"
