"""`hvd-elastic priorityclasses`: the four classes, which are applied once per cluster."""

from collections.abc import Sequence
from typing import Any

import click

from hvd_elastic.cli.clusters.class_options import chosen_classes, chosen_guard, class_options, guard_options
from hvd_elastic.cli.output import Column, Format, Result, of_manifests, output_option, show
from hvd_elastic.mpijob.contract import GPU_RESOURCE
from hvd_elastic.mpijob.problems import InvalidInputError
from hvd_elastic.priorityclasses import ClassQuota, ClassUser, PriorityClass, Problem, guard_manifests, manifest
from hvd_elastic.system.plain_words import count_words

_COLUMNS = (
    Column(title="name", key="name"),
    Column(title="value", key="value", right=True),
    Column(title="preemption", key="preemption"),
    Column(title="default", key="default"),
    Column(title="for", key="description"),
)


@click.command
@class_options
@click.option(
    "--guard", is_flag=True, help="Also print who may use the classes of inference and floor. Needs Kubernetes 1.30."
)
@guard_options(when="With --guard")
@output_option(Format.TABLE, Format.JSON, Format.YAML, Format.NAME, default=Format.YAML)
def command(
    *,
    inference: str | None,
    floor: str | None,
    preserved: str | None,
    preemptible: str | None,
    global_default: tuple[str, ...],
    cutoff: int,
    guard: bool,
    allow: tuple[str, ...],
    quota: tuple[str, ...],
    allow_floor: tuple[str, ...],
    quota_floor: tuple[str, ...],
    output: Format,
) -> None:
    """Print the PriorityClasses: inference preempts workers, and launchers and floors stay.

    hvd-elastic priorityclasses | kubectl apply -f -

    hvd-elastic priorityclasses --guard --allow serving --quota serving=16 | kubectl apply -f -
    """
    problems: list[Problem] = []
    classes = chosen_classes(
        problems,
        inference=inference,
        floor=floor,
        preserved=preserved,
        preemptible=preemptible,
        global_default=global_default,
        cutoff=cutoff,
    )
    given = {"--allow": allow, "--quota": quota, "--allow-floor": allow_floor, "--quota-floor": quota_floor}
    users, quotas = list[ClassUser](), list[ClassQuota]()
    if guard:
        users, quotas = chosen_guard(
            problems, allow=allow, quota=quota, allow_floor=allow_floor, quota_floor=quota_floor
        )
    elif path := next((name for name, values in given.items() if values), ""):
        what = "says who may use a class, but without --guard nothing does"
        problems.append(Problem(path=path, value=", ".join(given[path]), what=what, way_out="add --guard"))
    if problems:
        raise InvalidInputError(problems)
    show(_result(classes, guard_manifests(classes, users, quotas) if guard else ()), output)


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
    hard = {key.removeprefix("requests."): int(amount) for key, amount in one["spec"]["hard"].items()}
    words = [count_words(gpus, "GPU") if name == GPU_RESOURCE else f"{gpus} {name}" for name, gpus in hard.items()]
    return f"ResourceQuota: {', '.join(words)} in {one['metadata']['namespace']}"
