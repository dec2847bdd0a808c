"""The tables and the picture of benchmarks/launcher_scale.py."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace

from benchmarks.report.aim import Aim
from benchmarks.report.growth import growth
from benchmarks.report.record import Column, Table, Value
from benchmarks.scaling.scale_figures import ADDRESS_BYTES, LAUNCH, MIB, PHASES, STOCK, Lookups, Scale
from hvd_elastic.client.bench.line_chart import Axis, Line, decades, line_chart

SHARED = "the stubs share the launcher's cores, and its threads wait for them"
Found = dict[tuple[str, int], Scale]


def cells(found: Found, size: int, figure: Callable[[Scale, str], float | None]) -> list[Value]:
    """A figure of each phase, under each launcher."""
    return [
        figure(scale, phase) if (scale := found.get((name, size))) and phase in scale.phases else None
        for phase in PHASES
        for name in (LAUNCH, STOCK)
    ]


def cpu_of(scale: Scale, phase: str) -> float:
    return scale.phases[phase].cpu


def memory(found: Found, size: int) -> list[float | None]:
    return [scale.mib if (scale := found.get((name, size))) else None for name in (LAUNCH, STOCK)]


def phase_columns(format: str) -> tuple[Column, ...]:  # noqa: A002  as of a column
    return tuple(Column(title=f"{phase}: {name}", format=format) for phase in PHASES for name in (LAUNCH, STOCK))


def cost_table(found: Found, sizes: Sequence[int]) -> Table:
    failures = [f"{name} at {size}: {scale.failure}." for (name, size), scale in found.items() if scale.failure]
    return Table(
        name="launcher-scale-cost",
        title="CPU seconds of the launcher until all workers train, and its memory in MiB at full size",
        columns=(
            Column(title="workers", format="d"),
            *phase_columns(".2f"),
            *(Column(title=f"MiB: {name}", format=".0f") for name in (LAUNCH, STOCK)),
        ),
        rows=[[size, *cells(found, size, cpu_of), *memory(found, size)] for size in sizes],
        note=" ".join(["Without Gloo's look-ups and without ssh.", *failures]),
    )


def growth_aims(costs: Table) -> list[Aim]:
    """That no phase of `launch` grows faster than the number of workers, from the smallest size to the largest."""
    ends = replace(costs, rows=[costs.rows[0], costs.rows[-1]])
    grown = growth(ends, name="ends")
    (sizes, *_) = grown.rows[0]
    return [
        Aim(
            what=f"CPU of launch as the workers double, times, {phase}, {sizes} workers",
            bound=2.0,
            measured=max(grown.figures(f"{phase}: {LAUNCH}"), default=None),
            reason=SHARED,
        )
        for phase in PHASES
    ]


def time_table(found: Found, sizes: Sequence[int]) -> Table:
    rows: list[list[Value]] = []
    for size in sizes:
        clocks = cells(found, size, lambda scale, phase: scale.phases[phase].seconds)
        shares = cells(found, size, lambda scale, phase: scale.phases[phase].share)
        notices = [found[name, size].notice_seconds if (name, size) in found else [] for name in (LAUNCH, STOCK)]
        pings = cells(found, size, lambda scale, phase: scale.phases[phase].pings)[2::2]
        rows.append(
            [size, *clocks, *shares[2:], *pings, *(statistics.median(each) if each else None for each in notices)]
        )
    shares_columns = [
        Column(title=f"launcher's share, {column.title}", format=".2f") for column in phase_columns(".2f")[2:]
    ]
    return Table(
        name="launcher-scale-times",
        title="Seconds by the clock until all workers train, and how long all of them wait for the launcher meanwhile",
        columns=(
            Column(title="workers", format="d"),
            *phase_columns(".2f"),
            *shares_columns,
            *(Column(title=f"pings, {phase}: {LAUNCH}", format="d") for phase in PHASES[1:]),
            *(Column(title=f"list to notification: {name}", format=".3f") for name in (LAUNCH, STOCK)),
        ),
        rows=rows,
        note="The stub workers take most of these cores: compare launchers, not sizes. `launch` pings each second "
        "those for which the others wait, so its CPU grows with the time that slow stubs take to ask.",
    )


def gloo_table(found: Found, sizes: Sequence[int]) -> Table:
    rows: list[list[Value]] = []
    for size in sizes:
        pairs = size * (size - 1)
        answer = ADDRESS_BYTES * (size - 1)
        row: list[Value] = [size, 5 * pairs // 2, 2 * pairs * answer / 2**30, size * answer / MIB]
        for name in (LAUNCH, STOCK):
            scale = found.get((name, size))
            row += lookup_cells(scale.lookups if scale else None, pairs)
        rows.append(row)
    kinds = (("us of a look-up", ".0f"), ("CPU s, predicted", ".1f"), ("CPU s, measured", ".1f"))
    return Table(
        name="launcher-scale-gloo",
        title="What Gloo asks of either launcher to form one world, in its scope `global`",
        columns=(
            Column(title="workers", format="d"),
            Column(title="look-ups", format=","),
            Column(title="GiB sent", format=".2f"),
            Column(title="MiB kept", format=".0f"),
            *(Column(title=f"{what}: {name}", format=digits) for name in (LAUNCH, STOCK) for what, digits in kinds),
        ),
        rows=rows,
        note="Counted from Gloo's code; predicted from what single look-ups with such answers cost.",
    )


def lookup_cells(costs: Lookups | None, pairs: int) -> list[Value]:
    if costs is None:
        return [None, None, None]
    return [1e6 * costs.whole, pairs / 2 * costs.short + 2 * pairs * costs.whole, costs.all_seconds]


def picture(found: Found, sizes: Sequence[int]) -> str:
    lines = []
    for name in (LAUNCH, STOCK):
        for phase in (PHASES[0], PHASES[2]):
            scales = [(size, found[name, size].phases.get(phase)) for size in sizes if (name, size) in found]
            points = [(float(size), seen.cpu) for size, seen in scales if seen and seen.cpu > 0]
            lines += [Line(name=f"{name}: {phase}", points=points)] if points else []
    values = [value for line in lines for _, value in line.points]
    return line_chart(
        lines,
        title="CPU of the launcher by the number of workers",
        x=Axis(title="workers", ticks=[(float(size), str(size)) for size in sizes], is_logarithmic=True),
        y=Axis(title="CPU seconds", ticks=[(tick, f"{tick:g}") for tick in decades(values)], is_logarithmic=True),
    )
