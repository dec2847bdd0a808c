"""The lines of a launcher's log as the API server sends them, and which of them are asked for.

With `timestamps=true` each line is `STAMP TEXT`, STAMP in RFC 3339 with nine decimals, in the node's time zone
(`timeFormatOut` in k8s.io/cri-client, pkg/logs/logs.go). TEXT is a worker's line if its rank stands in front, as both
launchers write it (`hvd_elastic.launcher.remote.worker_output`); all other lines are the launcher's own.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

_STAMPED: Final = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d+)?(Z|[+-]\d\d:\d\d) ", re.ASCII)
_WORKER: Final = re.compile(r"(?:\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4})?\[(\d+)\](?:<(stdout|stderr)>)?:", re.ASCII)
"""The date is of `--prefix-timestamp`. mpirun's lines name no stream if they are tagged in short."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One line that a job has printed."""

    time: str
    """When it was written: RFC 3339 with nanoseconds, as the node stamped it."""
    launcher: str
    """The launcher's pod."""
    rank: int | None
    """None: the launcher itself wrote it."""
    stream: str
    """`stdout` or `stderr` of the rank; empty if it is not known."""
    text: str
    """Without what was in front of it."""

    def __str__(self) -> str:
        return self.text if self.rank is None else f"[{self.rank}] {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSelection:
    """Which lines are asked for. By default all."""

    ranks: frozenset[int] = frozenset()
    launcher: bool = False
    """Whether the launcher's own lines are asked for by name."""

    @property
    def is_all(self) -> bool:
        """Whether nothing is left out."""
        return not self.ranks and not self.launcher

    def admits(self, line: LogLine) -> bool:
        """Whether the line is asked for."""
        return self.is_all or (self.launcher if line.rank is None else line.rank in self.ranks)


ALL_LINES: Final = LogSelection()


def stamped_second(line: bytes) -> int | None:
    """Unix seconds of a line, rounded down. None for one without a stamp: the kubelet's own words, or a torn line."""
    match = _STAMPED.match(line)
    return _unix_second(match[1], match[2]) if match else None


def parse_line(line: bytes, launcher: str) -> LogLine:
    """A line with its stamp, as a value. `launcher`: the pod that it is from. Raises ValueError without a stamp."""
    match = _STAMPED.match(line)
    if match is None:
        raise ValueError(f"a log line without a time: {line[:100]!r}")
    time, text = line[: match.end() - 1].decode("ascii"), line[match.end() :].decode(errors="replace")
    worker = _WORKER.match(text)
    return LogLine(
        time=time,
        launcher=launcher,
        rank=int(worker[1]) if worker else None,
        stream=(worker[2] or "") if worker else "",
        text=text[worker.end() :] if worker else text,
    )


@lru_cache(maxsize=8)
def _unix_second(date: bytes, zone: bytes) -> int:
    """Lines of one second come together, so nearly all find their second here."""
    return (datetime.fromisoformat((date + zone).decode("ascii")) - _EPOCH) // timedelta(seconds=1)
