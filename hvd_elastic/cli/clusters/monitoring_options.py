"""Options that `alerts` and `dashboard` share."""

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import click

from hvd_elastic.cli.object_names import checked_name
from hvd_elastic.mpijob.problems import InvalidInputError
from hvd_elastic.priorityclasses import Problem

_Command = TypeVar("_Command", bound=Callable[..., Any])
_LABEL: Final = re.compile(
    r"([a-z0-9.-]+/)?[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?=([A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?)?"
)
"""KEY=VALUE (https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set)."""


def metadata_options(kind: str) -> Callable[[_Command], _Command]:
    """`--namespace` and `--label KEY=VALUE` of an object of this kind, as the parameters `namespace` and `labels`."""
    namespace = click.option(
        "-n", "--namespace", callback=checked_name, help=f"Where the {kind} is. By default that of kubectl."
    )
    labels = click.option(
        "--label", "labels", metavar="KEY=VALUE", multiple=True, help=f"Of the {kind}. May be repeated."
    )
    return lambda command: namespace(labels(command))


def parsed_labels(labels: Sequence[str]) -> dict[str, str]:
    """The labels. Raises InvalidInputError with each that is none."""
    problems = [
        Problem(path="--label", value=label, what="is not a label", way_out="write KEY=VALUE")
        for label in labels
        if not _LABEL.fullmatch(label)
    ]
    if problems:
        raise InvalidInputError(problems)
    pairs = (label.partition("=") for label in labels)
    return {key: value for key, _, value in pairs}


def check_no_metadata(namespace: str | None, labels: Sequence[str], *, way_out: str) -> None:
    """What is printed is no object. Raises InvalidInputError if something is said of one."""
    said = {"--namespace": namespace, "--label": ", ".join(labels)}
    problems = [
        Problem(path=flag, value=value, what="is of an object, and none is printed", way_out=way_out)
        for flag, value in said.items()
        if value
    ]
    if problems:
        raise InvalidInputError(problems)
