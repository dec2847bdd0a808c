"""`hvd-elastic priorityclasses`: the three classes, which are applied once per cluster."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import click

from hvd_elastic.cli.output import Column, Format, Result, of_manifests, output_option, show
from hvd_elastic.mpijob.problems import InvalidInputError
from hvd_elastic.priorityclasses import (
    AUTOSCALER_CUTOFF,
    DEFAULTS,
    ClassQuota,
    ClassUser,
    PriorityClass,
    Problem,
    Tier,
    check,
    check_guard,
    guard_manifests,
    manifest,
)

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
@click.option("--guard", is_flag=True, help="Also print who may use the class of inference. Needs Kubernetes 1.30.")
@click.option(
    "--allow",
    metavar="NAMESPACE[/ACCOUNT]",
    multiple=True,
    help="With --guard: pods that may use it, all of a namespace or those of one ServiceAccount.",
)
@click.option(
    "--quota", metavar="NAMESPACE=GPUS", multiple=True, help="With --guard: GPUs of its pods in a namespace, at most."
)
@output_option(Format.TABLE, Format.JSON, Format.YAML, Format.NAME, default=Format.YAML)
def command(
    *,
    inference: str | None,
    preserved: str | None,
    preemptible: str | None,
    global_default: tuple[str, ...],
    cutoff: int,
    guard: bool,
    allow: tuple[str, ...],
    quota: tuple[str, ...],
    output: Format,
) -> None:
    """Print the PriorityClasses: inference preempts workers, and launchers stay.

    hvd-elastic priorityclasses | kubectl apply -f -

    hvd-elastic priorityclasses --guard --allow serving --quota serving=16 | kubectl apply -f -
    """
    wanted = {Tier.INFERENCE: inference, Tier.PRESERVED: preserved, Tier.PREEMPTIBLE: preemptible}
    problems: list[Problem] = []
    classes = [_redefined(default, wanted[default.tier], problems) for default in DEFAULTS]
    classes = [replace(one, global_default=one.name in global_default) for one in classes]
    problems += [*_unknown(global_default, classes), *check(classes, cutoff=cutoff)]
    users, quotas = [_user(text) for text in allow], [_quota(text, problems) for text in quota]
    if guard:
        problems += check_guard(users, quotas)
    elif allow or quota:
        what = "says who may use a class, but without --guard nothing does"
        path = "--allow" if allow else "--quota"
        problems.append(Problem(path=path, value=", ".join(allow or quota), what=what, way_out="add --guard"))
    if problems:
        raise InvalidInputError(problems)
    show(_result(classes, guard_manifests(classes, users, quotas) if guard else ()), output)


def _user(text: str) -> ClassUser:
    namespace, slash, account = text.partition("/")
    return ClassUser(namespace=namespace if account or not slash else text, account=account)


def _quota(text: str, problems: list[Problem]) -> ClassQuota:
    namespace, _, gpus = text.partition("=")
    try:
        return ClassQuota(namespace=namespace, gpus=int(gpus))
    except ValueError:
        way_out = f"write {namespace}=16"
        problems.append(Problem(path="--quota", value=text, what="has no whole number of GPUs", way_out=way_out))
        return ClassQuota(namespace=namespace, gpus=0)


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


def _result(classes: Sequence[PriorityClass], guard: Sequence[dict[str, Any]]) -> Result:
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
    rows += [{"name": one["metadata"]["name"], "description": _purpose(one)} for one in guard]
    return of_manifests([*(manifest(one) for one in classes), *guard], rows=rows, columns=_COLUMNS)


def _purpose(one: dict[str, Any]) -> str:
    if one["kind"] != "ResourceQuota":
        return f"{one['kind']}: who may use the class"
    (gpus,) = one["spec"]["hard"].values()
    return f"ResourceQuota: {gpus} GPUs in {one['metadata']['namespace']}"
