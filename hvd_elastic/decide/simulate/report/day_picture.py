"""The day as an SVG picture: for each way how many workers trained over the day, below them how long inference waited.

Written by hand: no plotting library is needed for steps and bars.
"""

from collections.abc import Iterator, Sequence
from typing import Final
from xml.sax.saxutils import escape

from hvd_elastic.decide.simulate.outcome import DayOutcome, JobOutcome

_WIDTH: Final = 960
_LEFT: Final = 90
_PLOT: Final = 840
_PANEL: Final = 110
_GAP: Final = 34
_TOP: Final = 58
_HOUR: Final = 3600.0
_COLOURS: Final = ("#1f5fa8", "#d62728", "#2a8f4f", "#8a5fb0", "#c98a1b", "#4a4a4a", "#16a0a8", "#b04a7a")


def day_picture(outcomes: Sequence[DayOutcome]) -> str:
    """The SVG document."""
    changes = (change for one in outcomes for job in one.jobs for change in job.sizes.changes())
    most = max((change.workers for change in changes), default=1) or 1
    height = _TOP + len(outcomes) * (_PANEL + _GAP) + _bars_height(outcomes)
    size = f'width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        _text(_LEFT, 18, f"Workers over the day: {outcomes[0].source}" if outcomes else "", size=13),
        *_legend(outcomes[0].jobs if outcomes else ()),
    ]
    for place, outcome in enumerate(outcomes):
        parts += _panel(outcome, _TOP + place * (_PANEL + _GAP), most)
    parts += _bars(outcomes, _TOP + len(outcomes) * (_PANEL + _GAP))
    return "\n".join([*parts, "</svg>", ""])


def _legend(jobs: Sequence[JobOutcome]) -> Iterator[str]:
    """Which colour is which job, as far as each has one of its own."""
    shown = jobs[: len(_COLOURS)]
    for place, (job, colour) in enumerate(zip(shown, _COLOURS, strict=False)):
        yield _text(_LEFT + _PLOT * place / len(_COLOURS), 34, job.name[:16], colour=colour)


def _panel(outcome: DayOutcome, top: float, most: int) -> Iterator[str]:
    bottom = top + _PANEL
    yield _text(_LEFT, top - 4, f"{outcome.way.value}: goodput {outcome.goodput:.1%}")
    yield f'<line x1="{_LEFT}" y1="{bottom}" x2="{_LEFT + _PLOT}" y2="{bottom}" stroke="#999"/>'
    yield _text(_LEFT - 8, top + 10, str(most), anchor="end")
    yield _text(_LEFT - 8, bottom, "0", anchor="end")
    for tick in range(7):
        x = _LEFT + _PLOT * tick / 6
        yield f'<line x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}" stroke="#eee"/>'
        yield _text(x, bottom + 13, f"{outcome.seconds * tick / 6 / _HOUR:.3g} h", anchor="middle", size=10)
    for number, job in enumerate(outcome.jobs):
        colour = _COLOURS[number % len(_COLOURS)]
        yield (
            f'<path d="{_steps(job, outcome.seconds, top, most)}" fill="none" stroke="{colour}" stroke-width="1.3">'
            f"<title>{escape(job.name)}</title></path>"
        )


def _steps(job: JobOutcome, seconds: float, top: float, most: int) -> str:
    """A stair of the sizes."""
    moves, workers = [f"M{_LEFT},{top + _PANEL:.1f}"], 0
    for change in job.sizes.changes():
        x = _LEFT + _PLOT * min(change.second, seconds) / seconds
        if change.workers == workers:
            continue
        moves.append(f"H{x:.1f}V{top + _PANEL * (1 - change.workers / most):.1f}")
        workers = change.workers
    end = job.completed if job.completed is not None else seconds
    return "".join([*moves, f"H{_LEFT + _PLOT * min(end, seconds) / seconds:.1f}"])


def _bars_height(outcomes: Sequence[DayOutcome]) -> int:
    return 30 + 22 * len(outcomes)


def _bars(outcomes: Sequence[DayOutcome], top: float) -> Iterator[str]:
    """Waiting of inference: p50 dark, p99 light."""
    longest = max((outcome.inference.p99 for outcome in outcomes), default=0.0) or 1.0
    yield _text(_LEFT, top + 12, "Inference waits, seconds: p50 dark, p99 light", size=13)
    for place, outcome in enumerate(outcomes):
        y = top + 24 + 22 * place
        yield _text(_LEFT - 8, y + 12, outcome.way.value, anchor="end")
        for value, colour in ((outcome.inference.p99, "#a9c6e8"), (outcome.inference.p50, "#1f5fa8")):
            width = (_PLOT - 130) * value / longest
            yield f'<rect x="{_LEFT}" y="{y}" width="{width:.1f}" height="14" fill="{colour}"/>'
        end = _LEFT + (_PLOT - 130) * outcome.inference.p99 / longest
        yield _text(end + 6, y + 12, f"{outcome.inference.p50:.1f} / {outcome.inference.p99:.1f}")


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 12, colour: str = "#222") -> str:
    look = f'text-anchor="{anchor}" font-size="{size}" fill="{colour}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {look}>{escape(text)}</text>'
