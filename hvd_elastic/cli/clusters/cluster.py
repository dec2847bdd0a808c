"""`hvd-elastic cluster`: a cluster for elastic training, by the cloud's own tools."""

import shutil
import subprocess
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from hvd_elastic.cli.changes.confirmation import confirm
from hvd_elastic.mpijob.contract import HvdElasticError

if TYPE_CHECKING:
    from hvd_elastic.setup.clusters import ClusterPlan, Step

_Command = TypeVar("_Command", bound=Callable[..., Any])

_CLOUDS = ("eks", "gke", "aks")


@click.group
def command() -> None:
    """Make a cluster for elastic training on EKS, GKE or AKS, or take it away.

    Prints a script of the cloud's own tools: eksctl, gcloud or az, with helm and kubectl. --run calls them.
    """


def _plan_options(function: _Command) -> _Command:
    options = (
        click.argument("name"),
        click.option("--cloud", type=click.Choice(_CLOUDS), required=True, help="The cloud."),
        click.option("--region", required=True, help="Region, as the cloud names it."),
        click.option("--project", help="GKE: the project."),
        click.option("--resource-group", help="AKS: the resource group; made if it is not there."),
        click.option("--run", "run_it", is_flag=True, help="Call the tools. Each command is printed first."),
    )
    for option in reversed(options):
        function = option(function)
    return function


@command.command("create")
@_plan_options
@click.option("--zone", "zones", multiple=True, help="Zone of nodes; may be given several times. EKS needs two.")
@click.option("--machine", "machines", multiple=True, required=True, help="GPU machine type of workers; several times.")
@click.option("--max-nodes", type=int, default=8, show_default=True, help="Most nodes of each pool of workers.")
@click.option("--launcher-machine", help="Machine type for launchers and the cluster's own pods.")
@click.option("--max-launcher-nodes", type=int, default=4, show_default=True, help="Most nodes for launchers.")
@click.option("--version", help="Version of Kubernetes. Default: the newest that all three clouds offer.")
@click.option("--config", is_flag=True, help="EKS: print eksctl's ClusterConfig alone.")
def create(*, run_it: bool, config: bool, project: str | None, resource_group: str | None, **keys: Any) -> None:
    """Print, or with --run call, what makes the cluster NAME.

    On-demand nodes for launchers; for each GPU machine a spot and an on-demand pool that begin with no node; device
    plugin, CSI drivers, MPI Operator, PriorityClasses; on EKS the Cluster Autoscaler and the node termination handler.
    """
    from hvd_elastic.mpijob.clouds.cloud import Cloud
    from hvd_elastic.setup.clusters import creation, script

    if keys["version"] is None:
        del keys["version"]
    plan = _plan(account=_account(keys["cloud"], project, resource_group), **keys)
    steps = creation(plan, today=_today())
    if config:
        if plan.cloud is not Cloud.EKS or run_it:
            raise click.UsageError("--config prints the ClusterConfig of --cloud eks, without --run")
        from hvd_elastic.mpijob.manifests.writers.yaml_stream import dump
        from hvd_elastic.setup.clusters.eks import cluster_config

        click.echo(dump([cluster_config(plan)]), nl=False)
        return
    if run_it:
        _run(steps)
        return
    click.echo(script(steps, title=f"creates the cluster {plan.name} on {plan.cloud}"), nl=False)


@command.command("delete")
@_plan_options
@click.option("--yes", is_flag=True, help="Do not ask.")
def delete(*, run_it: bool, yes: bool, project: str | None, resource_group: str | None, **keys: Any) -> None:
    """Print, or with --run call, what deletes the cluster NAME. The volumes that hold data are listed first."""
    from hvd_elastic.setup.clusters import deletion, kept_data, script

    account = _account(keys["cloud"], project, resource_group)
    plan = _plan(account=account, zones=("a", "b"), machines=(_any_machine(keys["cloud"]),), **keys)
    first, steps = kept_data(plan), deletion(plan)
    if run_it:
        _need(first + steps)
        _run(first)
        confirm(f"Delete the cluster {plan.name}, whose volumes are listed above?", yes=yes)
        _run(steps)
        return
    asked = None if yes else plan.name
    click.echo(script(steps, first=first, confirm=asked, title=f"deletes the cluster {plan.name}"), nl=False)


def _plan(*, cloud: str, zones: Sequence[str], machines: Sequence[str], **keys: Any) -> "ClusterPlan":
    from hvd_elastic.mpijob.clouds.cloud import Cloud
    from hvd_elastic.setup.clusters import ClusterPlan

    return ClusterPlan(cloud=Cloud(cloud), zones=tuple(zones), machines=tuple(dict.fromkeys(machines)), **keys)


def _any_machine(cloud: str) -> str:
    """A machine that passes the check of plans: the deletion of a cluster does not depend on it."""
    from hvd_elastic.mpijob.clouds.machine_types import machine_tables

    return next(iter(machine_tables()[cloud].machines))


def _account(cloud: str, project: str | None, resource_group: str | None) -> str | None:
    return {"gke": project, "aks": resource_group}.get(cloud)


def _today() -> date:
    return datetime.now(UTC).date()


def _need(steps: "Sequence[Step]") -> None:
    """Looks for all tools before the first is called."""
    missing = sorted({step.argv[0] for step in steps if shutil.which(step.argv[0]) is None})
    if missing:
        raise HvdElasticError(f"not found: {', '.join(missing)}. Install them, or run the script elsewhere.")


def _run(steps: "Sequence[Step]") -> None:
    _need(steps)
    for step in steps:
        click.echo(f"# {step.purpose}\n{step.line()}", err=True)
        done = subprocess.run(step.argv, input=step.stdin, text=True, check=False)
        if done.returncode:
            raise HvdElasticError(f"{step.argv[0]} ended with {done.returncode}: {step.purpose}. What was made stays.")
