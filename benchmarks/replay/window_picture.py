"""A window of a recorded day as one picture: who had the GPUs, a lane for each system, ours beside what others use.

The SVG is written by hand, and carries its own ground and colours for light and dark: it stands in the README.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final
from xml.sax.saxutils import escape

from benchmarks.replay.measured_window import Measured

STILL_SECONDS: Final = 1.0
"""Without a step for so long, training stands still, and has no GPU that it uses."""

_WIDTH: Final = 860
_LEFT: Final = 48
_PLOT: Final = 788
_LANE: Final = 84
_GAP: Final = 46
_TOP: Final = 80
_BOTTOM: Final = 46
_TICKS: Final = 6

_STYLE: Final = """\
<style>
.rd-ground { fill: #fff; } .rd-ink { fill: #1f2328; } .rd-faint { fill: #59636e; } .rd-line { stroke: #d1d9e0; }
.rd-inference { fill: #f0b37e; } .rd-training { fill: #2f6fb5; }
.rd-inference, .rd-training { shape-rendering: crispEdges; }
@media (prefers-color-scheme: dark) {
.rd-ground { fill: #161b22; } .rd-ink { fill: #e6edf3; } .rd-faint { fill: #9198a1; } .rd-line { stroke: #3d444d; }
.rd-inference { fill: #b9743a; } .rd-training { fill: #5b9bdf; } }
</style>"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """So many GPUs from one moment to another."""

    begins: float
    """Seconds since the window began."""
    ends: float
    gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One system in the picture."""

    name: str
    caption: str
    """What came of it, in a few words."""
    inference: Sequence[Span]
    """GPUs for which inference asks: from the top."""
    training: Sequence[Span]
    """GPUs on which steps were taken: from the bottom."""


def lane(measured: Measured, *, name: str, caption: str) -> Lane:
    """What was measured, as a lane. Between two steps training has the GPUs of the first one, if it does not stand."""
    moments = [(float(step["time"]) - measured.began, int(step["size"])) for step in measured.steps]
    asks = [(float(ask["second"]), int(ask["gpus"])) for ask in measured.asks]
    ends = (measured.seconds, 0)
    return Lane(
        name=name,
        caption=caption,
        inference=_joined([*asks, ends]),
        training=_joined([*moments, ends], most_seconds=STILL_SECONDS),
    )


def _joined(changes: Sequence[tuple[float, int]], *, most_seconds: float = float("inf")) -> list[Span]:
    """Spans from each moment to the next, those of the same GPUs as one. A gap longer than that is nobody's."""
    spans: list[Span] = []
    for (at, gpus), (until, _) in pairwise(changes):
        if not gpus or until - at > most_seconds:
            continue
        if spans and spans[-1].gpus == gpus and spans[-1].ends == at:
            spans[-1] = Span(begins=spans[-1].begins, ends=until, gpus=gpus)
        else:
            spans.append(Span(begins=at, ends=until, gpus=gpus))
    return spans


def window_picture(lanes: Sequence[Lane], *, title: str, seconds: float, gpus: int) -> str:
    """The SVG document.

    Args:
        lanes: from top to bottom.
        title: says which window it is.
        seconds: how long the window took.
        gpus: how many there are in all.
    """
    height = _TOP + len(lanes) * (_LANE + _GAP) - _GAP + _BOTTOM
    told = ". ".join(f"{each.name}: {each.caption}" for each in lanes)
    size = f'width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" font-family="system-ui, sans-serif">',
        f"<title>{escape(title)}</title><desc>{escape(told)}</desc>",
        _STYLE,
        f'<rect class="rd-ground" width="{_WIDTH}" height="{height}" rx="6"/>',
        _text(_LEFT, 22, title, weight=600),
        *_legend(),
    ]
    for number, each in enumerate(lanes):
        parts += _drawn(each, _TOP + number * (_LANE + _GAP), seconds, gpus)
    parts += _time_axis(height - _BOTTOM, seconds)
    return "\n".join([*parts, "</svg>", ""])


def _legend() -> Iterator[str]:
    words = (("training", "training takes steps"), ("inference", "inference asks"), ("ground", "neither"))
    for number, (kind, word) in enumerate(words):
        x = _LEFT + _PLOT - 380 + 150 * number
        yield f'<rect class="rd-{kind} rd-line" x="{x}" y="32" width="11" height="11" stroke-width="1"/>'
        yield _text(x + 16, 42, word, size=12)


def _drawn(each: Lane, top: float, seconds: float, gpus: int) -> Iterator[str]:
    bottom, unit = top + _LANE, _LANE / gpus
    yield _text(_LEFT, top - 8, each.name, weight=600)
    yield _text(_LEFT + _PLOT, top - 8, each.caption, anchor="end", kind="faint")
    for count in range(gpus + 1):
        y = bottom - count * unit
        yield f'<path class="rd-line" d="M{_LEFT},{y:.1f}h{_PLOT}"/>'
        yield _text(_LEFT - 8, y + 4, str(count), anchor="end", size=11, kind="faint")
    for span in each.inference:
        yield _box("inference", span, seconds, top, span.gpus * unit)
    for span in each.training:
        yield _box("training", span, seconds, bottom - span.gpus * unit, span.gpus * unit)


def _box(kind: str, span: Span, seconds: float, top: float, height: float) -> str:
    begins, ends = (_across(at, seconds) for at in (span.begins, span.ends))
    return f'<rect class="rd-{kind}" x="{begins:.1f}" y="{top:.1f}" width="{ends - begins:.1f}" height="{height:.1f}"/>'


def _time_axis(bottom: float, seconds: float) -> Iterator[str]:
    unit, name = (60, "min") if seconds >= 600 else (1, "s")
    for tick in range(_TICKS + 1):
        at = seconds * tick / _TICKS
        yield _text(
            _across(at, seconds), bottom + 16, f"{at / unit:.0f} {name}", anchor="middle", size=11, kind="faint"
        )
    yield _text(_LEFT + _PLOT / 2, bottom + 36, "GPUs over the time of the replay", anchor="middle", kind="faint")


def _across(second: float, seconds: float) -> float:
    return _LEFT + _PLOT * min(max(second, 0.0), seconds) / seconds


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", size: int = 13, kind: str = "ink", weight: int = 400
) -> str:
    look = f'class="rd-{kind}" text-anchor="{anchor}" font-size="{size}" font-weight="{weight}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {look}>{escape(text)}</text>'
