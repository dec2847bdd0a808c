"""The points of a sweep, from what a user wrote: `--grid NAME=A,B` (the product of all), or a file with a list."""

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from hvd_elastic.mpijob.description import yaml_document
from hvd_elastic.mpijob.description.keys import KEYS, Shape
from hvd_elastic.mpijob.problems import InvalidInputError
from hvd_elastic.priorityclasses.problem import Problem

Point = Mapping[str, str]
"""Values by name, as text. A name is a key of the job description, or an argument of the script."""

MAX_POINTS: Final = 1000
ARGUMENT: Final = "arg:"
"""In front of a name: an argument of the script, whatever keys there are."""
_ARGUMENT_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_DECIDED: Final = {"name", "namespace", "command", "suspend", "queue"}
"""Keys that belong to the sweep as a whole."""


def grid_points(words: Sequence[str]) -> Sequence[Point]:
    """The product of `NAME=A,B` words; the last varies fastest. Raises InvalidInputError with all problems."""
    pairs = [word.partition("=") for word in words]
    problems = [
        Problem(path="--grid", value=word, what="names no values", way_out="write --grid NAME=VALUE,VALUE")
        for word, (name, _, values) in zip(words, pairs, strict=True)
        if not name or not all(values.split(","))
    ]
    names = [name for name, _, _ in pairs]
    problems += [
        Problem(path="--grid", value=name, what="is given twice", way_out="write all its values once")
        for name in dict.fromkeys(name for name in names if names.count(name) > 1)
    ]
    if problems:
        raise InvalidInputError(problems)
    return _product({name: values.split(",") for name, _, values in pairs})


def points_of(values: Mapping[str, Sequence[object]] | Sequence[Mapping[str, object]]) -> Sequence[Point]:
    """The points of plain values: of a grid, whose product they are, or of a list. Raises InvalidInputError."""
    if isinstance(values, Mapping):
        return _product({name: list(map(_text, those)) for name, those in values.items()})
    if len(values) > MAX_POINTS:
        raise InvalidInputError([_too_many(len(values))])
    return _checked([{name: _text(value) for name, value in point.items()} for point in values])


def file_points(path: Path) -> Sequence[Point]:
    """The points of a YAML file: a list of mappings from names to single values. Raises InvalidInputError."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        what = f"cannot be read: {reason}"
        raise InvalidInputError([Problem(path="--points", value=str(path), what=what)]) from error
    items, problems = yaml_document.parse_list(text, name=str(path))
    points: list[Point] = []
    for place, item in enumerate(items):
        if not isinstance(item, dict) or not item:
            way_out = "write `- {NAME: VALUE}`"
            problems.append(Problem(path=f"{path}[{place}]", value=..., what="is not a mapping", way_out=way_out))
            continue
        problems += [
            Problem(path=f"{path}[{place}].{name}", value=..., what="is not a single value")
            for name, value in item.items()
            if not isinstance(value, str | int | float)
        ]
        points.append({name: _text(value) for name, value in item.items()})
    if len(items) > MAX_POINTS:
        problems.append(_too_many(len(items)))
    if problems:
        raise InvalidInputError(problems)
    return _checked(points)


def arguments(point: Point) -> list[str]:
    """What is appended to the command: `--NAME VALUE` for each name that is no key."""
    return [
        word
        for name, value in point.items()
        if not _is_key(name)
        for word in (f"--{name.removeprefix(ARGUMENT)}", value)
    ]


def job_keys(point: Point) -> dict[str, object]:
    """The values of keys, as `read_job` takes them: by dotted path."""
    values: dict[str, object] = {}
    for name, value in point.items():
        if not _is_key(name):
            continue
        mapping, _, inner = name.partition(".")
        if _is_mapping(mapping):
            inside = values.setdefault(mapping, {})
            assert isinstance(inside, dict)
            inside[inner] = value
        else:
            values[name] = [value] if KEYS[name].shape is Shape.LIST else value
    return values


def _is_key(name: str) -> bool:
    """Whether it is a key, or below one that holds a mapping, as `env.SEED`."""
    return name in KEYS or _is_mapping(name.partition(".")[0])


def _is_mapping(name: str) -> bool:
    return name in KEYS and KEYS[name].shape is Shape.MAPPING


def _checked(points: Sequence[Point]) -> Sequence[Point]:
    """The points, if every name can be used and none is there twice. Raises InvalidInputError."""
    names = dict.fromkeys(name for point in points for name in point)
    problems = [*itertools.chain.from_iterable(map(_name_problems, names)), *_twice(points)]
    if not any(points):  # the product of nothing is one point without values
        problems.append(Problem(path="--grid", value=..., what="is missing", way_out="give --grid or --points"))
    if problems:
        raise InvalidInputError(problems)
    return points


def _name_problems(name: str) -> Iterator[Problem]:
    root = name.partition(".")[0]
    if root in _DECIDED:
        yield Problem(path=name, value=..., what="is the same for all jobs of a sweep", way_out="set it in the job")
    elif _is_mapping(name):
        yield Problem(path=name, value=..., what="is a mapping", way_out=f"name a key of it: {name}.KEY")
    elif not _is_key(name):
        argument = name.removeprefix(ARGUMENT)
        if argument == name and "." in name:
            way_out = f"write {ARGUMENT}{name} if it is an argument of the script"
            yield Problem(path=name, value=..., what="is not a key of a job description", way_out=way_out)
        elif not _ARGUMENT_NAME.fullmatch(argument):
            what = "is neither a key of a job description nor the name of an argument"
            yield Problem(path=name, value=..., what=what, way_out="write it without dashes in front: lr")


def _twice(points: Iterable[Point]) -> Iterator[Problem]:
    seen: set[frozenset[tuple[str, str]]] = set()
    for point in points:
        if (values := frozenset(point.items())) in seen:
            yield Problem(path=describe(point), value=..., what="is there twice", way_out="keep one of them")
        seen.add(values)


def describe(point: Point) -> str:
    """The point on one line: `lr=0.1 batch.global=256`."""
    return " ".join(f"{name}={value}" for name, value in point.items())


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _product(axes: Mapping[str, Sequence[str]]) -> Sequence[Point]:
    """The points of a grid; the last name varies fastest. Raises InvalidInputError."""
    if (count := math.prod(map(len, axes.values()))) > MAX_POINTS:
        raise InvalidInputError([_too_many(count)])
    return _checked([dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())])


def _too_many(count: int) -> Problem:
    what = f"makes {count} jobs, more than {MAX_POINTS}"
    return Problem(path="sweep", value=..., what=what, way_out="divide it")
