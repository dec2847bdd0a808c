"""`hvd-elastic platform-kit`: what is applied once per cluster, as a kustomize base in a folder."""

import re
from pathlib import Path

import click

from hvd_elastic.cli.clusters.class_options import chosen_classes, chosen_guard, class_options, guard_options
from hvd_elastic.cli.clusters.monitoring_options import parsed_labels
from hvd_elastic.cli.object_names import checked_name
from hvd_elastic.cli.output import Column, Format, Result, output_option, say, show
from hvd_elastic.mpijob.contract import GPU_RESOURCE
from hvd_elastic.mpijob.problems import InvalidInputError
from hvd_elastic.priorityclasses import ClassQuota, ClassUser, Problem
from hvd_elastic.priorityclasses.guard import GUARDED
from hvd_elastic.setup.platform_kit.kit_files import file_of, kit_files
from hvd_elastic.setup.platform_kit.kit_folder import write_kit
from hvd_elastic.setup.platform_kit.kit_parts import (
    COMPONENTS,
    KUEUE,
    OPERATOR_WATCHDOG,
    SLOW_NODES,
    KitSettings,
    kit_parts,
)
from hvd_elastic.setup.platform_kit.kueue_queues import QueueGpus

_COLUMNS = (
    Column(title="part", key="part"),
    Column(title="file", key="file"),
    Column(title="objects", key="objects", right=True),
    Column(title="applied", key="applied"),
    Column(title="for", key="for"),
)
_DEFAULTS = KitSettings()
_COUNT = re.compile(r"\d{1,6}", re.ASCII)
_RESOURCE = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?/[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?")


@click.command
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@class_options
@guard_options(when="With a guard")
@click.option("--queue-gpus", metavar="SERVING[:TRAINING[:RESOURCE]]", default="",
              help="Queues of Kueue: GPUs of serving, which training borrows, and of training, its floor.")  # fmt: skip
@click.option(
    "--image",
    default="",
    help="Of autoscaler, watchdog and slow-nodes: this project's, or one built from it. Else none.",
)
@click.option("-n", "--namespace", default=_DEFAULTS.autoscaler_namespace, show_default=True, callback=checked_name,
              help="Of autoscaler and slow-nodes.")  # fmt: skip
@click.option("--operator-namespace", default=_DEFAULTS.operator_namespace, show_default=True, callback=checked_name,
              help="Of the MPI Operator.")  # fmt: skip
@click.option("--operator-account", default=_DEFAULTS.operator_account, show_default=True, callback=checked_name,
              help="ServiceAccount of the MPI Operator.")  # fmt: skip
@click.option("--monitoring-namespace", default=_DEFAULTS.monitoring_namespace, show_default=True,
              callback=checked_name, help="Of alert rules and dashboard.")  # fmt: skip
@click.option("--label", "labels", metavar="KEY=VALUE", multiple=True,
              help="Of alert rules and dashboard. May be repeated.")  # fmt: skip
@click.option("--with", "switched_on", type=click.Choice(COMPONENTS), multiple=True,
              help="Have the base apply this component. May be repeated.")  # fmt: skip
@output_option(Format.TABLE, Format.JSON, Format.YAML, Format.NAME)
def command(
    *,
    folder: Path,
    inference: str | None,
    floor: str | None,
    preserved: str | None,
    preemptible: str | None,
    global_default: tuple[str, ...],
    cutoff: int,
    allow: tuple[str, ...],
    quota: tuple[str, ...],
    allow_floor: tuple[str, ...],
    quota_floor: tuple[str, ...],
    queue_gpus: str,
    image: str,
    namespace: str,
    operator_namespace: str,
    operator_account: str,
    monitoring_namespace: str,
    labels: tuple[str, ...],
    switched_on: tuple[str, ...],
    output: Format,
) -> None:
    """Write what a platform team sets up once for all jobs to the folder DIR, as a kustomize base.

    Classes and the MPI Operator's right; with --allow the guard, with --image the autoscaler. The floor, queues of
    Kueue, roles of people, the guard of MPIJobs, the MPI Operator's watchdog, what keeps workers off slow nodes, alert
    rules and the dashboard are components: name them in an overlay, or with --with. The same options write the same
    files.

    hvd-elastic platform-kit kit --allow serving --quota serving=16 --with alerts

    kubectl apply --server-side -k kit
    """
    problems = list[Problem]()
    classes = chosen_classes(
        problems,
        inference=inference,
        floor=floor,
        preserved=preserved,
        preemptible=preemptible,
        global_default=global_default,
        cutoff=cutoff,
    )
    users, quotas = list[ClassUser](), list[ClassQuota]()
    if allow or quota or allow_floor or quota_floor:
        users, quotas = chosen_guard(
            problems, allow=allow, quota=quota, allow_floor=allow_floor, quota_floor=quota_floor
        )
    gpus = _queue_gpus(queue_gpus, problems) if queue_gpus else None
    if problems:
        raise InvalidInputError(problems)
    settings = KitSettings(
        classes=classes,
        users=users,
        quotas=quotas,
        queue_gpus=gpus,
        image=image,
        autoscaler_namespace=namespace,
        operator_namespace=operator_namespace,
        operator_account=operator_account,
        monitoring_namespace=monitoring_namespace,
        monitoring_labels=parsed_labels(labels),
    )
    try:
        parts = kit_parts(settings)
    except ModuleNotFoundError as error:
        raise click.ClickException(f"{error.name} is missing: pip install 'hvd-elastic[dashboard]'") from error
    for controller in (OPERATOR_WATCHDOG, SLOW_NODES):
        if controller in switched_on and not image:
            raise click.UsageError(f"--with {controller} needs --image")
    if KUEUE in switched_on and not queue_gpus:
        raise click.UsageError(f"--with {KUEUE} needs --queue-gpus: how many of the cluster's GPUs are whose")
    paths = write_kit(kit_files(parts, switched_on=switched_on), folder)
    rows = [
        {
            "part": part.name,
            "file": file_of(part),
            "objects": len(part.manifests),
            "applied": "where it is named" if part.is_component and part.name not in switched_on else "yes",
            "for": part.purpose,
        }
        for part in parts
    ]
    show(Result(rows=rows, columns=_COLUMNS, names=[str(path) for path in paths]), output)
    if not users:
        names = " and ".join(settings.of_tier(tier).name for tier in GUARDED)
        say(f"no guard: whoever may create pods may use {names}; --allow and --allow-floor say who may")
    if not image:
        say("no autoscaler: --image adds it")


def _queue_gpus(text: str, problems: list[Problem]) -> QueueGpus:
    serving, _, rest = text.partition(":")
    training, _, resource = rest.partition(":")
    if not (_COUNT.fullmatch(serving) and _COUNT.fullmatch(training or "0") and _RESOURCE.fullmatch(resource or "a/b")):
        way_out = "write 14:2, or 14:2:amd.com/gpu for another resource"
        problems.append(Problem(path="--queue-gpus", value=text, what="is not two numbers of GPUs", way_out=way_out))
        return QueueGpus(serving=0)
    return QueueGpus(serving=int(serving), training=int(training or 0), resource=resource or GPU_RESOURCE)
