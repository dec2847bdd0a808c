"""How well a job scales as plain data, as CSV, as a picture, and the fit as a formula."""

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from hvd_elastic.client.bench.line_chart import Axis, Line, line_chart, round_steps
from hvd_elastic.client.bench.scale.scaling_efficiency import ScalingRow
from hvd_elastic.client.profile.job_profile import JobProfile
from hvd_elastic.policy.step_time import AllReduceTime, StepTime


def scaling_document(profile: JobProfile, rows: Sequence[ScalingRow]) -> dict[str, Any]:
    """Plain data for JSON and YAML: the rows, and what a profile says of the fit."""
    whole = profile.document()
    return {
        **{key: whole[key] for key in ("job", "batch", "step_time", "error")},
        "sizes": [asdict(row) for row in rows],
    }


def scaling_csv(rows: Sequence[ScalingRow]) -> str:
    """One line for each size, after a line of titles."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(asdict(rows[0])), lineterminator="\n")
    writer.writeheader()
    writer.writerows(map(asdict, rows))
    return text.getvalue()


def formula(step_time: StepTime) -> str:
    """The fit with its values, for K workers with m samples each."""
    computing = f"T(K, m) = {step_time.base:.4g} s + {step_time.per_sample:.4g} s * m"
    near, far = step_time.one_node, step_time.several_nodes
    if near == far:
        return f"{computing} + {_exchange(near)}"
    return f"{computing} + on one node {_exchange(near)}, on several {_exchange(far)}"


def scaling_picture(profile: JobProfile, rows: Sequence[ScalingRow]) -> str:
    """Samples per second over the number of workers as an SVG document: measured, ideal, and by the fit."""
    largest = rows[-1].workers
    ideal = rows[0].ideal_samples_per_second / rows[0].workers
    fitted = [(workers, profile.model.samples_per_second(workers)) for workers in range(1, largest + 1)]
    lines = [
        Line(name="measured", points=[(row.workers, row.samples_per_second) for row in rows]),
        Line(name="ideal", points=[(0, 0.0), (largest, ideal * largest)], dashed=True),
        Line(name="fitted", points=fitted, dashed=True),
    ]
    most = max(speed for line in lines for _, speed in line.points)
    return line_chart(
        lines,
        title=f"Scaling of {profile.job}",
        x=Axis(title="workers", ticks=[(row.workers, str(row.workers)) for row in rows]),
        y=Axis(title="samples/s", ticks=[(tick, f"{tick:g}") for tick in round_steps(most)]),
    )


def _exchange(time: AllReduceTime) -> str:
    return f"{time.exchange:.4g} s * (K-1)/K + {time.per_worker:.4g} s * K for K > 1"
