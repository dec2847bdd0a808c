"""From what a user wrote, in a file and as flags, to a JobSpec, or to everything that is wrong with it."""

import dataclasses
import difflib
from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from pathlib import Path
from reprlib import Repr
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from hvd_elastic.mpijob import checks
from hvd_elastic.mpijob.checks.meant_keys import meant_accelerator, meant_key
from hvd_elastic.mpijob.description import yaml_document
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.description.keys import KEYS, Shape, flag_of, section_of
from hvd_elastic.mpijob.description.scalar_types import VALUE_FROM_WAY_OUT, by_name
from hvd_elastic.mpijob.description.section import Section
from hvd_elastic.mpijob.problems import InvalidInputError
from hvd_elastic.priorityclasses.problem import Problem

_PLACEHOLDERS: Final = {"name": "job", "command": ["true"], "url": "file:///checkpoint", "key": "key", "zone": "zone"}
"""Replace required values that are missing or wrong, so that the rest can be checked in the same run."""
_ROUNDS: Final = 8
_LONGEST_SHOWN: Final = 200
_SHORT: Final = Repr()
_SHORT.maxlevel = 2


def read_job(
    source: str | PathLike[str] | None,
    overrides: Mapping[str, object] | None = None,
    *,
    defaults: Mapping[str, object] | None = None,
    also: Callable[[JobSpec], Iterable[Problem]] | None = None,
) -> JobSpec:
    """The job that `source` describes, with `overrides` (flags) on top.

    A `str` is YAML text, a path is a file, None is an empty description. `overrides` and `defaults` have dotted paths
    as keys (`workers.min`). A short form (`workers: 1:4`) replaces the keys that it names and keeps the others. The
    file wins over `defaults`.

    Raises InvalidInputError with every problem: unknown keys, wrong values, contradictions, and what `also` finds.
    `also` sees placeholders where values are wrong.
    """
    written, problems = _load(source)
    if problems and not written:
        raise InvalidInputError(problems)
    raw: dict[str, Any] = {}
    for dotted, value in _by_depth(defaults or {}):
        _put(raw, JobSpec, dotted.split("."), value)
    _merge(raw, JobSpec, written)
    for dotted, value in _by_depth(overrides or {}):
        _put(raw, JobSpec, dotted.split("."), value)
    spec, found = _validate(raw)
    problems += found
    wrong = {problem.path.partition("[")[0] for problem in found}
    if spec is not None:
        consequences = [*checks.job_problems(spec), *(also(spec) if also else ())]
        problems += [problem for problem in consequences if problem.path.partition("[")[0] not in wrong]
    if problems:
        raise InvalidInputError(_as_written(problem, overrides or {}) for problem in problems)
    assert spec is not None
    return spec


def _load(source: str | PathLike[str] | None) -> tuple[dict[str, Any], list[Problem]]:
    if source is None:
        return {}, []
    if isinstance(source, str):
        return yaml_document.parse(source, name="job")
    name = str(source)
    try:
        text = Path(source).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return {}, [Problem(path=name, value="", what="is not UTF-8 text", way_out="save it as UTF-8")]
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        return {}, [Problem(path=name, value="", what=f"cannot be read: {reason}", way_out="name a job description")]
    return yaml_document.parse(text, name=name)


# --- Putting file and flags together ---------------------------------------------------------------------------------


def _by_depth(values: Mapping[str, object]) -> list[tuple[str, object]]:
    """Short forms first, so that the order of `--workers 1:4 --workers-gpus 2` does not matter."""
    return sorted(values.items(), key=lambda item: item[0].count("."))


def _put(into: dict[str, Any], model: type[Section], path: list[str], value: object) -> None:
    _merge(into, model, {path[0]: value} if len(path) == 1 else {path[0]: _nested(path[1:], value)})


def _nested(path: list[str], value: object) -> object:
    for part in reversed(path):
        value = {part: value}
    return value


def _merge(into: dict[str, Any], model: type[Section], value: Mapping[str, Any]) -> None:
    for key, new in value.items():
        section = section_of(model, key)
        if section is not None:
            new, old = section.expand(new), section.expand(into.get(key))  # noqa: PLW2901 - the same value in its long form
            if isinstance(new, dict) and isinstance(old, dict):
                kept = dict(old)
                _merge(kept, section, new)
                into[key] = kept
                continue
        elif isinstance(new, dict) and isinstance(old := by_name(into.get(key)), dict):
            new = {**old, **new}  # noqa: PLW2901
        into[key] = new


# --- Every problem at once -------------------------------------------------------------------------------------------


def _validate(raw: dict[str, Any]) -> tuple[JobSpec | None, list[Problem]]:
    """The job, and what was wrong with it. Wrong values are taken out, and the rest is checked again."""
    problems: list[Problem] = []
    for _ in range(_ROUNDS):
        try:
            return JobSpec.model_validate(raw), problems
        except ValidationError as error:
            details = [detail for detail in error.errors() if detail["type"] != "default_factory_not_called"]
            problems += [_problem(detail) for detail in details]
            raw = _without(raw, [detail["loc"] for detail in details])
    return None, problems


def _without(raw: dict[str, Any], places: list[tuple[int | str, ...]]) -> dict[str, Any]:
    """A copy of `raw` without the values at `places`. Required values are replaced by placeholders."""
    kept: Any = {key: _copied(value) for key, value in raw.items()}
    for place in places:
        steps = list(_steps(place))
        holder = kept
        for step in steps[:-1]:
            holder = holder.get(step) if isinstance(holder, dict) else None
        if not isinstance(holder, dict):
            kept.pop(steps[0], None)
            continue
        holder.pop(steps[-1], None)
        if steps[-1] in _PLACEHOLDERS and (len(steps) > 1 or steps[-1] in {"name", "command"}):
            holder[steps[-1]] = _PLACEHOLDERS[steps[-1]]
    return {key: value for key, value in kept.items() if value is not None}


def _copied(value: Any) -> Any:
    return {key: _copied(inner) for key, inner in value.items()} if isinstance(value, dict) else value


def _steps(place: tuple[int | str, ...]) -> list[str]:
    """The keys on the way to a place. They end at a list, because an item of a list has no default of its own."""
    steps: list[str] = []
    for part in place:
        if isinstance(part, int) or part == "[key]":
            break
        steps.append(part)
    return steps


def _path_of(place: tuple[int | str, ...]) -> str:
    text = ""
    for part in place:
        if part == "[key]":
            continue
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _problem(detail: ErrorDetails) -> Problem:
    path = _path_of(detail["loc"])
    what, way_out = _explained(detail, path)
    value = None if detail["type"] == "missing" else detail["input"]
    if value is None and path == "command":
        way_out = COMMAND_WAY_OUT
    if detail["type"] == "string_type" and isinstance(value, Mapping | list):
        way_out = VALUE_FROM_WAY_OUT if path.startswith("secrets[") else "write one value"
    return Problem(path=path, value=value if _is_short(value) else _Excerpt(value), what=what, way_out=way_out)


def _is_short(value: object) -> bool:
    return value is None or isinstance(value, int | float) or (isinstance(value, str) and len(value) <= _LONGEST_SHOWN)


class _Excerpt:
    """A value whose repr is one short line, even if it is long or deeply nested."""

    def __init__(self, value: object) -> None:
        self._text = _SHORT.repr(value)

    def __repr__(self) -> str:
        return self._text


COMMAND_WAY_OUT: Final = "name the program, on a command line after all options: -- python train.py"

_MEANINGS: Final = {
    "missing": ("is missing", "add it"),
    "string_type": ("is not text", "put it in quotes"),
    "int_type": ("is not a whole number", "write one, without quotes"),
    "int_parsing": ("is not a whole number", "write one"),
    "int_parsing_size": ("is too large a number", "write a smaller one"),
    "int_from_float": ("is not a whole number", "write one"),
    "bool_type": ("is neither true nor false", "write one of the two"),
    "bool_parsing": ("is neither true nor false", "write one of the two"),
    "list_type": ("is not a list", "write it as [one, two]"),
    "tuple_type": ("is not a list", "write it as [one, two]"),
    "dict_type": ("is not a mapping", "write it as {key: value}"),
    "too_short": ("is empty", "give it at least one item"),
}


def _explained(detail: ErrorDetails, path: str) -> tuple[str, str]:
    """What is wrong, and the way out."""
    kind, context = detail["type"], detail.get("ctx", {})
    match kind:
        case "extra_forbidden":
            return "is not a key of a job description", meant_key(path)
        case "enum" | "literal_error":
            meant = meant_accelerator(str(detail["input"])) if path == "gpu_type" else None
            return "is not known", meant or _nearest_value(str(detail["input"]), str(context["expected"]))
        case "greater_than_equal" | "less_than_equal":
            return _out_of_bounds(context)
        case "string_pattern_mismatch":
            return f"does not match {context['pattern']}", "change it to match"
        case "model_type":
            return "is not a mapping", _long_form(path)
        case _:
            return _MEANINGS.get(kind, (str(context.get("error", detail["msg"])), ""))


def _out_of_bounds(context: Mapping[str, Any]) -> tuple[str, str]:
    if "ge" in context:
        return f"is below {context['ge']}", f"write {context['ge']} or more"
    return f"is above {context['le']}", f"write {context['le']} or less"


def _long_form(path: str) -> str:
    section = KEYS[path].section if path in KEYS else None
    return f"write {{key: value}} or {section.short_form}" if section and section.short_form else "write {key: value}"


def _nearest_value(value: str, expected: str) -> str:
    known = [word.strip("' ") for word in expected.replace(" or ", ", ").split(",")]
    if close := difflib.get_close_matches(value.lower(), known, n=1):
        return f"did you mean {close[0]}?"
    return f"choose among {', '.join(known)}"


def _as_written(problem: Problem, overrides: Mapping[str, object]) -> Problem:
    """The problem with the name that the user knows the value by: its flag, if it came from one."""
    if not problem.path:  # an empty key would print as nothing
        problem = dataclasses.replace(problem, path='""')
    bare = problem.path.partition("[")[0]
    source = next((key for key in sorted(overrides, key=len, reverse=True) if _came_from(bare, key)), None)
    if source is None or source == "command" or _is_tree(source):  # these have no flag
        return problem
    return Problem(path=flag_of(source), value=problem.value, what=problem.what, way_out=problem.way_out)


def _is_tree(key: str) -> bool:
    return key in KEYS and KEYS[key].shape is Shape.TREE


def _came_from(path: str, key: str) -> bool:
    return path == key or path.startswith(f"{key}.")
