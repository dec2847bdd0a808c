"""The command line: one thin module per verb, which is imported only when the verb is called.

Verbs are in folders as `--help` groups them; what several verbs share is beside the folders.
"""

import importlib
import sys
from functools import partial
from itertools import chain
from typing import Final, NoReturn

import click

from hvd_elastic.cli.standard_streams import guarded_streams
from hvd_elastic.mpijob.contract import Exit, HvdElasticError

GROUPS: Final = {
    "Run and submit jobs": {
        "run": "Run a job on this machine, without a cluster.",
        "submit": "Submit a job to a cluster, or bring one that runs up to its description.",
        "sweep": "Run one job with many values, so many at once, and compare the results.",
        "stage": "Copy a job's data set from a bucket into its shared storage, before any GPU is asked for.",
        "generate": "Print the Kubernetes manifests of a job.",
        "lint": "List the hazards of any MPIJob, and how to remove them.",
        "schema": "Print the JSON Schema of a job description.",
    },
    "Look at jobs": {
        "list": "List the jobs of a namespace or of all: state, size, steps, useful time, GPU-hours.",
        "status": "Say the truth about a job: what it does, who left it and why, what it waits for.",
        "watch": "Watch one job or all, live: world size over time, workers with reasons, loss, inference that waits.",
        "logs": "Print what all ranks of a job print, over resizes and launcher restarts.",
        "events": "Tell the story of a job in order, with causes, from its ledger, its pods and the scheduler.",
        "discover": "Show which workers of a job may be used, and why the others may not.",
        "checkpoints": "List, show, verify, export and import durable checkpoints, beside the job that writes them.",
        "cost": "Say what a job has held, lent and lost in GPU-seconds, and what that cost.",
        "tensorboard": "Show a job's TensorBoard events: run TensorBoard in the cluster, and say how to reach it.",
    },
    "Change jobs": {
        "scale": "Give a job another number of workers. Those that go leave training first.",
        "suspend": "Give all GPUs of a job back until it is resumed.",
        "resume": "Start a suspended job again.",
        "restart": "Begin a job anew from its last durable checkpoint, whether it goes on or has ended.",
        "delete": "Delete jobs with what stands beside them. Volumes stay unless asked for.",
    },
    "Set up a cluster": {
        "cluster": "Make a cluster on EKS, GKE or AKS with the cloud's own tools, or take it away.",
        "node-groups": "Print the node groups that a job needs, with what lets them grow from no node.",
        "doctor": "Look whether a cluster has what elastic training needs, and say how to mend what is missing.",
        "priorityclasses": "Print the PriorityClasses of inference, launchers and workers.",
        "operator-role": "Print the right that the MPI Operator 0.8 lacks to resume jobs up to Kubernetes 1.35.",
        "autoscaler": "Print what runs the autoscaler in a cluster: its rights, and a Deployment.",
        "platform-kit": "Write what a platform team sets up once for all jobs into a folder, as a kustomize base.",
        "alerts": "Print alert rules for Prometheus: stalled training, too few workers, late checkpoints, crashes.",
        "dashboard": "Print a Grafana dashboard: sizes, throughput, loss, pauses, checkpoints, workers, GPUs.",
    },
    "Measure and decide": {
        "simulate": "Simulate a cluster's day with some jobs, in several ways side by side, or choose a job's numbers.",
        "profile": "Say how long a job's steps take at any size, from what it has reported at some.",
        "bench": "Measure the network of a job, and how well the job scales over it.",
        "autoscale": "Share idle GPUs among several jobs, and give them back before inference asks.",
    },
    "On this machine": {
        "demo": "Train beside a made-up inference load on this machine, and report what it cost.",
        "install-horovod": "Build Horovod for the installed torch, once, and install it.",
        "launch": "Start and drive an elastic Horovod job: horovodrun's flags, but no single failure ends it.",
        "horovodrun": "Run the stock launcher, and begin again in place when its workers were taken away.",
    },
}
"""Name and one-line help of each verb that people call, in the order of `--help`."""

OF_PODS: Final = {
    "worker": "Run as PID 1 of a worker pod: sshd, a warm standby of the job, readiness, adoption.",
    "discovery-sidecar": "Keep the launcher's list of workers up to date. Runs beside the launcher in its pod.",
    "stage-copier": "Copy what is below a URL into a folder, or the rest of it. Runs in the pod of a stage.",
    "stage-gate": "Wait until a folder holds a whole data set. Runs in a job's pods before everything else.",
    "operator-watchdog": "Restart the MPI Operator when it leaves a job alone that needs it. Runs in the cluster.",
    "slow-nodes": "Keep the successors of slow workers off the nodes of those. Runs in the cluster.",
    "sweep-runner": "Resume the next job of a sweep when one ends. Runs in the cluster beside them.",
}
"""Verbs that only pods call: a job's, a sweep's, the platform kit's. `--help` leaves them out; each answers its own."""

VERBS: Final = {verb: text for group in (*GROUPS.values(), OF_PODS) for verb, text in group.items()}
"""All of them."""

_FOLDERS: Final = dict(
    zip(GROUPS, ("submission", "inspection", "changes", "clusters", "decisions", "this_machine"), strict=True)
)
"""Where the verbs of a group are."""

MODULES: Final = {
    verb: f"hvd_elastic.cli.{folder}.{verb.replace('-', '_')}"
    for folder, verbs in (*((_FOLDERS[title], verbs) for title, verbs in GROUPS.items()), ("pods", OF_PODS))
    for verb in verbs
}
"""The module of each verb, whose click command is `command`."""

LINUX_ONLY: Final = frozenset({"run", "demo", "install-horovod", "launch", "horovodrun", *OF_PODS})
"""Verbs that start, drive or are a job's processes. These use `/proc`, `prctl`, pidfds and more that only Linux has."""


class NotLinuxError(HvdElasticError):
    """The verb needs what Linux alone has."""

    exit_code = Exit.BAD_INPUT


class _LazyGroup(click.Group):
    """Knows its verbs by name, and imports a verb only to run it. `--help` imports none."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(MODULES[cmd_name])
        command = module.command
        assert isinstance(command, click.Command)
        if cmd_name in LINUX_ONLY and sys.platform != "linux":
            command.callback = partial(_refuse, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, chain(*GROUPS.values())))
        for title, verbs in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(verb.ljust(width), text) for verb, text in verbs.items()])


def _refuse(verb: str, **_: object) -> NoReturn:
    raise NotLinuxError(
        f"{verb} needs Linux, and this is {sys.platform}: call it on a Linux machine, in a container or in WSL,"
        " or give the job to a cluster with `hvd-elastic submit`"
    )


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="hvd-elastic")
def cli() -> None:
    """Elastic Horovod training that soaks up idle GPUs and gives them back the moment inference asks."""


def main() -> None:
    """Entry point of `hvd-elastic`. An error that a caller can act on becomes a message and an exit code."""
    with guarded_streams():
        _main()


def _main() -> None:
    try:
        cli.main(standalone_mode=False)
    except HvdElasticError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except BrokenPipeError:  # `hvd-elastic generate ... | head` is not an error
        sys.exit(Exit.OK)
