"""`hvd-elastic priorityclasses`: the three classes, which are applied once per cluster."""

from collections.abc import Iterator
from dataclasses import replace

import click

from hvd_elastic.cli.output import Column, Format, Result, of_manifests, output_option, show
from hvd_elastic.mpijob.problems import InvalidInputError
from hvd_elastic.priorityclasses import AUTOSCALER_CUTOFF, DEFAULTS, PriorityClass, Problem, Tier, check, manifest

_COLUMNS = (
    Column(title="name", key="name"),
    Column(title="value", key="value", right=True),
    Column(title="preemption", key="preemption"),
    Column(title="default", key="default"),
    Column(title="for", key="description"),
)


@click.command
@click.option("--inference", metavar="NAME[=VALUE]", help="The class of inference.")
@click.option("--preserved", metavar="NAME[=VALUE]", help="The class of launchers.")
@click.option("--preemptible", metavar="NAME[=VALUE]", help="The class of workers.")
@click.option("--global-default", metavar="NAME", multiple=True, help="The class of pods that name none.")
@click.option(
    "--cutoff",
    type=int,
    default=AUTOSCALER_CUTOFF,
    show_default=True,
    help="The Cluster Autoscaler's --expendable-pods-priority-cutoff.",
)
@output_option(Format.TABLE, Format.JSON, Format.YAML, Format.NAME, default=Format.YAML)
def command(
    *,
    inference: str | None,
    preserved: str | None,
    preemptible: str | None,
    global_default: tuple[str, ...],
    cutoff: int,
    output: Format,
) -> None:
    """Print the PriorityClasses: inference preempts workers, and launchers stay.

    hvd-elastic priorityclasses | kubectl apply -f -
    """
    wanted = {Tier.INFERENCE: inference, Tier.PRESERVED: preserved, Tier.PREEMPTIBLE: preemptible}
    problems: list[Problem] = []
    classes = [_redefined(default, wanted[default.tier], problems) for default in DEFAULTS]
    classes = [replace(one, global_default=one.name in global_default) for one in classes]
    problems += [*_unknown(global_default, classes), *check(classes, cutoff=cutoff)]
    if problems:
        raise InvalidInputError(problems)
    show(_result(classes), output)


def _redefined(default: PriorityClass, text: str | None, problems: list[Problem]) -> PriorityClass:
    if text is None:
        return default
    name, equals, value = text.partition("=")
    if not equals:
        return replace(default, name=name)
    try:
        return replace(default, name=name or default.name, value=int(value))
    except ValueError:
        way_out = f"write {name or default.name}={default.value}"
        problems.append(Problem(path=f"--{default.tier}", value=value, what="is not a whole number", way_out=way_out))
        return replace(default, name=name or default.name)


def _unknown(names: tuple[str, ...], classes: list[PriorityClass]) -> Iterator[Problem]:
    known = {one.name for one in classes}
    for name in names:
        if name not in known:
            way_out = f"choose among {', '.join(sorted(known))}"
            yield Problem(path="--global-default", value=name, what="is not one of the classes", way_out=way_out)
    if len(set(names) & known) > 1:
        value = ", ".join(names)
        yield Problem(
            path="--global-default", value=value, what="names more than one default", way_out="name one class"
        )


def _result(classes: list[PriorityClass]) -> Result:
    rows = [
        {
            "name": one.name,
            "value": one.value,
            "preemption": str(one.preemption_policy),
            "default": "yes" if one.global_default else None,
            "description": one.description,
        }
        for one in classes
    ]
    return of_manifests([manifest(one) for one in classes], rows=rows, columns=_COLUMNS)
