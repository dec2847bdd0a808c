"""Reads what a run of nccl-tests has printed, with NCCL's own log (`NCCL_DEBUG=INFO`) in between.

The rows are those of nccl-tests 2.19 (`src/util.cu`: writeBenchmarkLinePreamble, writeBenchmarkLineBody). What
`mpirun --tag-output` and `kubectl logs --prefix` put before a line is taken off.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from hvd_elastic.client.bench.nccl.nccl_network import networks
from hvd_elastic.mpijob.problems import InvalidInputError
from hvd_elastic.priorityclasses.problem import Problem

_PREFIX: Final = re.compile(r"^(?:\[pod/[^\]]+\] )?(?:\[\d+,\d+\]<std(?:out|err)>: ?)?")
_ROW: Final = re.compile(r"^\s*\d+\s+\d+\s+[a-z]\w*\s+\w+\s+-?\d+\b")
_BROKEN_ROW: Final = re.compile(r"^\s*\d+\s+\d+\s+(?:float|double|half|bfloat16|u?int\d+|fp8_\w+)\b")
_TIMESTAMP: Final = re.compile(r"\s\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$")
_OUT_OF_BOUNDS: Final = re.compile(r"# Out of bounds values *: *(\d+)")
_AVERAGE: Final = re.compile(r"# Avg bus bandwidth *: *(\S+)")
_FAILURE: Final = re.compile(
    r"Test (?:NCCL|CUDA) failure|Test failure|Test timeout|Invalid number of GPUs|mpirun noticed"
)
_MEASURED: Final = 4
"""Values of one kind of buffers: time, algbw, busbw, #wrong."""
_PER_ITERATION: Final = 4
"""What `--per_iter_timing` adds to each of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffers:
    """What was measured with one kind of buffers."""

    microseconds: float
    algorithm_gb_per_second: float
    bus_gb_per_second: float
    wrong: int | None
    """Numbers that came out wrong; None where that was not checked (`N/A`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclRow:
    """One size."""

    size: int
    """Bytes."""
    count: int
    type: str
    redop: str
    root: int
    out_of_place: Buffers
    in_place: Buffers


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclOutput:
    """All that a run has said."""

    rows: tuple[NcclRow, ...]
    average_bus_gb_per_second: float
    out_of_bounds: int
    """Sizes with wrong numbers, as nccl-tests count them."""
    networks: tuple[str, ...]
    """What has carried the messages between nodes; see `networks`. Empty: the log does not say."""

    @property
    def largest_bus_gb_per_second(self) -> float:
        """Of all rows, either kind of buffers."""
        return max(buffers.bus_gb_per_second for row in self.rows for buffers in (row.out_of_place, row.in_place))

    @property
    def wrong(self) -> int:
        """Numbers that came out wrong, or sizes that had some."""
        found = sum(buffers.wrong or 0 for row in self.rows for buffers in (row.out_of_place, row.in_place))
        return max(found, self.out_of_bounds)


def read_nccl_output(text: str, *, source: str) -> NcclOutput:
    """What the text says. `source`: what a message calls it.

    Raises InvalidInputError with every row that cannot be read, and where there is no row, no end, or a failure.
    """
    lines = [_PREFIX.sub("", line.rstrip()) for line in text.splitlines()]
    problems: list[Problem] = []
    rows = tuple(_rows(lines, source, problems))
    average = _last(_AVERAGE, lines)
    problems += _of_the_whole(lines, source, has_rows=bool(rows or problems), has_end=average is not None)
    try:
        bandwidth = float(average or 0.0)
    except ValueError:
        problems.append(_problem(f"{source}: Avg bus bandwidth", average, "is not a number"))
        bandwidth = 0.0
    if problems:
        raise InvalidInputError(problems)
    return NcclOutput(
        rows=rows,
        average_bus_gb_per_second=bandwidth,
        out_of_bounds=int(_last(_OUT_OF_BOUNDS, lines) or 0),
        networks=networks(lines),
    )


def _rows(lines: list[str], source: str, problems: list[Problem]) -> Iterator[NcclRow]:
    for number, line in enumerate(lines, 1):
        if not (_ROW.match(line) or _BROKEN_ROW.match(line)):
            continue
        try:
            yield _row(line)
        except (ValueError, IndexError):
            what = "is not a row of nccl-tests: size, count, type, redop, root, and twice time, algbw, busbw, #wrong"
            problems.append(_problem(f"{source}:{number}", line.strip(), what))


def _row(line: str) -> NcclRow:
    """Raises ValueError or IndexError."""
    size, count, kind, redop, root, *values = _TIMESTAMP.sub("", line).split()
    if len(values) not in {2 * _MEASURED, 2 * (_MEASURED + _PER_ITERATION)}:
        raise ValueError(line)
    half = len(values) // 2
    return NcclRow(
        size=int(size),
        count=int(count),
        type=kind,
        redop=redop,
        root=int(root),
        out_of_place=_buffers(values[:half]),
        in_place=_buffers(values[half:]),
    )


def _buffers(values: list[str]) -> Buffers:
    time, algorithm, bus, wrong = values[:_MEASURED]
    return Buffers(
        microseconds=float(time),
        algorithm_gb_per_second=float(algorithm),
        bus_gb_per_second=float(bus),
        wrong=None if wrong == "N/A" else int(float(wrong)),
    )


def _of_the_whole(lines: list[str], source: str, *, has_rows: bool, has_end: bool) -> Iterator[Problem]:
    failures = [(number, line) for number, line in enumerate(lines, 1) if _FAILURE.search(line)]
    for number, line in failures[:1]:
        yield _problem(f"{source}:{number}", line.strip(), "the run has failed", "look at the lines before it")
    if not has_rows:
        yield _problem(source, ..., "has no row of nccl-tests", "give the whole log of the launcher")
    elif not has_end and not failures:
        what = "ends before `# Avg bus bandwidth`: the run goes on, was ended, or its log is cut"
        yield _problem(source, ..., what, "give the whole log of a run that has ended")


def _last(pattern: re.Pattern[str], lines: list[str]) -> str | None:
    found = [match[1] for line in lines if (match := pattern.match(line))]
    return found[-1] if found else None


def _problem(path: str, value: object, what: str, way_out: str = "give the log as it was printed") -> Problem:
    return Problem(path=path, value=value, what=what, way_out=way_out)
