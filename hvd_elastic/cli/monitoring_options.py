"""Options that `alerts` and `dashboard` share."""

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import click

from hvd_elastic.mpijob.problems import InvalidInputError
from hvd_elastic.priorityclasses import Problem

_Command = TypeVar("_Command", bound=Callable[..., Any])
_LABEL: Final = re.compile(
    r"([a-z0-9.-]+/)?[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?=([A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?)?"
)
"""KEY=VALUE (https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set)."""


def labels_option(text: str) -> Callable[[_Command], _Command]:
    """`--label KEY=VALUE`, as the parameter `labels`, which `parsed_labels` reads."""
    return click.option("--label", "labels", metavar="KEY=VALUE", multiple=True, help=f"{text} May be repeated.")


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
