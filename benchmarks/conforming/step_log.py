"""A trainer's step log, checked line by line. The form is that of step_log.schema.json; README.md explains it."""

import json
from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, Final

from jsonschema import Draft202012Validator

from testbed.cluster.training import Account

_SCHEMA: Final = Path(__file__).with_name("step_log.schema.json")
_MOST_SHOWN: Final = 20
_MOST_CHARACTERS: Final = 200


class StepLogError(Exception):
    """Lines that are none of a step log, each with its place and what is wrong."""


def read_step_log(folder: Path, *, samples: int) -> Account:
    """What the processes of a job have written, in the order of time.

    Args:
        folder: its `*.jsonl` files, and those of folders in it.
        samples: of the data set; indices are below.

    Raises StepLogError, which names the first wrong lines, or says that there is none at all.
    """
    if wrong := list(islice(_problems(folder, samples), _MOST_SHOWN + 1)):
        more = ["and more"] if len(wrong) > _MOST_SHOWN else []
        raise StepLogError("\n".join([*wrong[:_MOST_SHOWN], *more]))
    account = Account.read(folder)
    if not account.steps:
        raise StepLogError(f"{folder}: no line says that rank 0 has taken a step: is it the folder of the log?")
    return account


def _problems(folder: Path, samples: int) -> Iterator[str]:
    for file in sorted(folder.rglob("*.jsonl")):
        for number, line in enumerate(file.read_text(errors="replace").splitlines(keepends=True), 1):
            if line.endswith("\n"):  # else it is being written
                yield from (f"{file}:{number}: {problem[:_MOST_CHARACTERS]}" for problem in _wrong(line, samples))


def _wrong(line: str, samples: int) -> Iterator[str]:
    try:
        event = json.loads(line)
    except ValueError as error:
        yield f"no JSON: {error}"
        return
    if problems := [f"{'.'.join(map(str, each.path))}: {each.message}" for each in _validator().iter_errors(event)]:
        yield from problems
        return
    if event["event"] in {"samples", "step"} and event["rank"] >= event["size"]:
        yield f"rank: {event['rank']} is none of a world of {event['size']}"
    if event["event"] == "samples" and (beyond := [each for each in event["samples"] if each >= samples]):
        yield f"samples: {beyond[0]} is none of a data set of {samples}"


@cache
def _validator() -> Any:
    return Draft202012Validator(json.loads(_SCHEMA.read_text()))
