"""What was measured as plain data, as CSV and as a picture."""

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from hvd_elastic.client.bench.allreduce.allreduce_measurement import AllreduceRow
from hvd_elastic.client.bench.allreduce.allreduce_world import WorldFacts
from hvd_elastic.client.bench.allreduce.message_sizes import binary
from hvd_elastic.client.bench.line_chart import Axis, Line, decades, line_chart
from hvd_elastic.system.plain_words import count_words


def allreduce_document(
    facts: WorldFacts, rows: Sequence[AllreduceRow], *, warm_up: int, iterations: int
) -> dict[str, Any]:
    """Plain data for JSON and YAML."""
    return {
        **asdict(facts),
        "warm_up": warm_up,
        "iterations": iterations,
        "sizes": [row.document() for row in rows],
    }


def allreduce_csv(facts: WorldFacts, rows: Sequence[AllreduceRow]) -> str:
    """One line for each size, after a line of titles. Each names its world, so that files can be joined."""
    lines = [{**asdict(facts), **row.document()} for row in rows]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def allreduce_summary(facts: WorldFacts) -> str:
    """One sentence about the world."""
    return (
        f"{facts.library} over {facts.backend}, {facts.device}: {count_words(facts.ranks, 'rank')} on "
        f"{count_words(facts.nodes, 'node')}"
    )


def allreduce_picture(facts: WorldFacts, rows: Sequence[AllreduceRow]) -> str:
    """Bandwidths over the message size as an SVG document, both axes logarithmic."""
    found = [row.document() for row in rows]
    lines = [
        Line(name=name, points=[(row["bytes"], row[key]) for row in found])
        for name, key in (("bus bandwidth", "bus_gb_per_second"), ("algorithm bandwidth", "algorithm_gb_per_second"))
    ]
    speeds = [speed for line in lines for _, speed in line.points]
    return line_chart(
        lines,
        title=f"All-reduce: {allreduce_summary(facts)}",
        x=Axis(
            title="bytes of the message",
            ticks=[(row.size, binary(row.size)) for row in rows[:: 1 + len(rows) // 12]],
            is_logarithmic=True,
        ),
        y=Axis(title="GB/s", ticks=[(tick, f"{tick:g}") for tick in decades(speeds)], is_logarithmic=True),
    )
