"""Which stalls each way has: the measured ones, those of a file, and single ones that are given by hand."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final

from hvd_elastic.decide.simulate.workload import Stalls, Way
from hvd_elastic.mpijob.problems import InvalidInputError
from hvd_elastic.priorityclasses.problem import Problem

EVENTS: Final = tuple(field.name for field in fields(Stalls))
_WAYS: Final = tuple(way.value for way in Way)

WayStalls = Mapping[Way, Stalls]


def read_stalls(path: Path, measured: WayStalls) -> WayStalls:
    """A YAML file `{WAY: {EVENT: SECONDS}}`; what it leaves out is as measured. Raises InvalidInputError."""
    from hvd_elastic.mpijob.yaml_input.yaml_composer import UnreadableError, read_value

    try:
        document = read_value(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, UnreadableError) as error:
        raise InvalidInputError([Problem(path="--stalls", value=str(path), what=str(error))]) from error
    problems = list(_document_problems(document))
    if problems:
        raise InvalidInputError(problems)
    return {way: replace(stalls, **document.get(way.value, {})) for way, stalls in measured.items()}


def with_overrides(stalls: WayStalls, words: Sequence[str]) -> WayStalls:
    """`EVENT=SECONDS` changes ours, `WAY.EVENT=SECONDS` another way. Raises InvalidInputError with all problems."""
    changed, problems = dict(stalls), []
    for word in words:
        name, _, text = word.partition("=")
        way, _, event = name.rpartition(".")
        seconds = _seconds(text)
        if (way or Way.OURS) in _WAYS and event in EVENTS and seconds is not None:
            known = Way(way or Way.OURS)
            changed[known] = replace(changed[known], **{event: seconds})
        else:
            way_out = f"write [WAY.]EVENT=SECONDS; events are {', '.join(EVENTS)}"
            problems.append(Problem(path="--stall", value=word, what="is no stall", way_out=way_out))
    if problems:
        raise InvalidInputError(problems)
    return changed


def _document_problems(document: object) -> Iterator[Problem]:
    if not isinstance(document, dict):
        yield Problem(path="--stalls", value=..., what="is not a mapping", way_out=f"write one of {', '.join(_WAYS)}")
        return
    for way, events in document.items():
        if way not in _WAYS or not isinstance(events, dict):
            yield Problem(path=str(way), value=..., what="is no way", way_out=f"write {', '.join(_WAYS)}")
            continue
        yield from _event_problems(way, events)


def _event_problems(way: str, events: Mapping[Any, Any]) -> Iterator[Problem]:
    for event, seconds in events.items():
        if event not in EVENTS:
            yield Problem(
                path=f"{way}.{event}", value=seconds, what="is no event", way_out=f"write {', '.join(EVENTS)}"
            )
        elif isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
            yield Problem(path=f"{way}.{event}", value=seconds, what="is not a number of seconds from 0 on")


def _seconds(text: str) -> float | None:
    """`inf` is a number of seconds: it never happens."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if value >= 0 else None
