"""Options that `priorityclasses` and `platform-kit` share: the classes, and who may use which."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any, Final, TypeVar

import click

from hvd_elastic.mpijob.contract import GPU_RESOURCE
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
)

_Command = TypeVar("_Command", bound=Callable[..., Any])

_CLASS_OPTIONS: Final = (
    click.option("--inference", metavar="NAME[=VALUE]", help="The class of inference."),
    click.option("--floor", metavar="NAME[=VALUE]", help="The class of workers that a job keeps."),
    click.option("--preserved", metavar="NAME[=VALUE]", help="The class of launchers."),
    click.option("--preemptible", metavar="NAME[=VALUE]", help="The class of workers."),
    click.option("--global-default", metavar="NAME", multiple=True, help="The class of pods that name none."),
    click.option(
        "--cutoff",
        type=int,
        default=AUTOSCALER_CUTOFF,
        show_default=True,
        help="The Cluster Autoscaler's --expendable-pods-priority-cutoff.",
    ),
)


def class_options(command: _Command) -> _Command:
    """An option for each class, `--global-default` and `--cutoff`, for `chosen_classes`."""
    return reduce(lambda decorated, option: option(decorated), reversed(_CLASS_OPTIONS), command)


def guard_options(*, when: str) -> Callable[[_Command], _Command]:
    """`--allow` and `--quota`, and the same for the floor, for `chosen_guard`. `when`: begins their help."""
    options = [
        click.option(
            f"--{name}{suffix}",
            metavar=metavar,
            multiple=True,
            help=f"{when}: {says.format(of)}",
        )
        for suffix, of in (("", "the class of inference"), ("-floor", "the class of a floor"))
        for name, metavar, says in (
            ("allow", "NAMESPACE[/ACCOUNT]", "who may use {}: a namespace's pods, or an account's."),
            ("quota", "NAMESPACE=GPUS[:RESOURCE]", f"most GPUs of {{}} in a namespace; of {GPU_RESOURCE} if unsaid."),
        )
    ]
    return lambda command: reduce(lambda decorated, option: option(decorated), reversed(options), command)


def chosen_classes(
    problems: list[Problem],
    *,
    inference: str | None,
    floor: str | None,
    preserved: str | None,
    preemptible: str | None,
    global_default: Sequence[str],
    cutoff: int,
) -> list[PriorityClass]:
    """The four classes as the options have them. What is wrong with them is added to `problems`."""
    wanted = {
        Tier.INFERENCE: inference,
        Tier.FLOOR: floor,
        Tier.PRESERVED: preserved,
        Tier.PREEMPTIBLE: preemptible,
    }
    classes = [_redefined(default, wanted[default.tier], problems) for default in DEFAULTS]
    if not (floor and "=" in floor):  # it has inference's value, whatever that is
        value = next(one.value for one in classes if one.tier is Tier.INFERENCE)
        classes = [replace(one, value=value) if one.tier is Tier.FLOOR else one for one in classes]
    classes = [replace(one, global_default=one.name in global_default) for one in classes]
    problems += [*_unknown(global_default, classes), *check(classes, cutoff=cutoff)]
    return classes


def chosen_guard(
    problems: list[Problem],
    *,
    allow: Sequence[str],
    quota: Sequence[str],
    allow_floor: Sequence[str],
    quota_floor: Sequence[str],
) -> tuple[list[ClassUser], list[ClassQuota]]:
    """Who may use the classes of inference and floor, and how much. What is wrong with them is added to `problems`."""
    users = [_user(text, tier) for tier, texts in _by_tier(allow, allow_floor) for text in texts]
    quotas = [_quota(text, tier, problems) for tier, texts in _by_tier(quota, quota_floor) for text in texts]
    problems += check_guard(users, quotas)
    return users, quotas


def _by_tier(inference: Sequence[str], floor: Sequence[str]) -> tuple[tuple[Tier, Sequence[str]], ...]:
    return (Tier.INFERENCE, inference), (Tier.FLOOR, floor)


def _user(text: str, tier: Tier) -> ClassUser:
    namespace, slash, account = text.partition("/")
    return ClassUser(namespace=namespace if account or not slash else text, tier=tier, account=account)


def _quota(text: str, tier: Tier, problems: list[Problem]) -> ClassQuota:
    namespace, _, rest = text.partition("=")
    gpus, colon, named = rest.partition(":")
    resource = named if colon else GPU_RESOURCE
    try:
        return ClassQuota(namespace=namespace, tier=tier, gpus=int(gpus), resource=resource)
    except ValueError:
        way_out = f"write {namespace}=16"
        path = "--quota-floor" if tier is Tier.FLOOR else "--quota"
        problems.append(Problem(path=path, value=text, what="has no whole number of GPUs", way_out=way_out))
        return ClassQuota(namespace=namespace, tier=tier, gpus=0, resource=resource)


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


def _unknown(names: Sequence[str], classes: list[PriorityClass]) -> Iterator[Problem]:
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
