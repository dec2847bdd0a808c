"""Lines over one axis as an SVG picture. Written by hand: no plotting library is needed for lines and dots."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

_WIDTH: Final = 760
_HEIGHT: Final = 420
_LEFT: Final = 80
_TOP: Final = 56
_PLOT_WIDTH: Final = 650
_PLOT_HEIGHT: Final = 300
_COLOURS: Final = ("#1f5fa8", "#d62728", "#2a8f4f", "#8a5fb0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a chart."""

    name: str
    points: Sequence[tuple[float, float]]
    dashed: bool = False
    """For what was not measured. Such a line has no dots."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One axis, from 0 or, where it is logarithmic, from the smallest value."""

    title: str
    ticks: Sequence[tuple[float, str]]
    """Where there is a label, and the label."""
    is_logarithmic: bool = False


def line_chart(lines: Sequence[Line], *, title: str, x: Axis, y: Axis) -> str:
    """The SVG document. Values on a logarithmic axis must be above 0."""
    across = _scale(x, [point[0] for line in lines for point in line.points], _LEFT, _LEFT + _PLOT_WIDTH)
    up = _scale(y, [point[1] for line in lines for point in line.points], _TOP + _PLOT_HEIGHT, _TOP)
    size = f'width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        _text(_LEFT, 20, title, size=14),
        *_frame(x, y, across, up),
    ]
    for number, line in enumerate(lines):
        colour = _COLOURS[number % len(_COLOURS)]
        parts += _drawn(line, colour, across, up)
        parts.append(_text(_LEFT + 165 * number, 42, line.name, colour=colour))
    return "\n".join([*parts, "</svg>", ""])


def decades(values: Sequence[float]) -> list[float]:
    """The powers of ten that enclose values above 0: ticks of a logarithmic axis."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return [10.0**power for power in range(low, high + 1)]


def round_steps(largest: float) -> list[float]:
    """0 and some round numbers, the last of them not below `largest`: ticks of an axis that begins at 0."""
    raw = largest / 5
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw)
    return [step * number for number in range(math.ceil(largest / step) + 1)]


def _scale(axis: Axis, values: Sequence[float], begin: float, end: float) -> Callable[[float], float]:
    """From a value to pixels."""
    shown = [*values, *(value for value, _ in axis.ticks)]
    convert = math.log10 if axis.is_logarithmic else float
    low = convert(min(shown)) if axis.is_logarithmic else 0.0
    span = convert(max(shown)) - low or 1.0
    return lambda value: begin + (end - begin) * (convert(value) - low) / span


def _frame(x: Axis, y: Axis, across: Callable[[float], float], up: Callable[[float], float]) -> Iterator[str]:
    right, bottom = _LEFT + _PLOT_WIDTH, _TOP + _PLOT_HEIGHT
    for value, label in x.ticks:
        place = across(value)
        yield f'<line x1="{place:.1f}" y1="{_TOP}" x2="{place:.1f}" y2="{bottom}" stroke="#eee"/>'
        yield _text(place, bottom + 16, label, anchor="middle", size=10)
    for value, label in y.ticks:
        place = up(value)
        yield f'<line x1="{_LEFT}" y1="{place:.1f}" x2="{right}" y2="{place:.1f}" stroke="#eee"/>'
        yield _text(_LEFT - 6, place + 4, label, anchor="end", size=10)
    yield f'<path d="M{_LEFT},{_TOP}V{bottom}H{right}" fill="none" stroke="#999"/>'
    yield _text(_LEFT + _PLOT_WIDTH / 2, bottom + 40, x.title, anchor="middle")
    middle = _TOP + _PLOT_HEIGHT / 2
    yield (
        f'<text x="20" y="{middle:.1f}" text-anchor="middle" fill="#222" transform="rotate(-90 20 {middle:.1f})">'
        f"{escape(y.title)}</text>"
    )


def _drawn(line: Line, colour: str, across: Callable[[float], float], up: Callable[[float], float]) -> Iterator[str]:
    places = [(across(value), up(other)) for value, other in line.points]
    path = "L".join(f"{left:.1f},{top:.1f}" for left, top in places)
    dashes = ' stroke-dasharray="6 4"' if line.dashed else ""
    if path:
        yield f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="1.6"{dashes}/>'
    if not line.dashed:
        yield from (f'<circle cx="{left:.1f}" cy="{top:.1f}" r="3" fill="{colour}"/>' for left, top in places)


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 12, colour: str = "#222") -> str:
    look = f'text-anchor="{anchor}" font-size="{size}" fill="{colour}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {look}>{escape(text)}</text>'
