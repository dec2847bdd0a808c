"""`hvd-elastic run`."""

import sys
from collections.abc import Mapping
from functools import partial

import click

from hvd_elastic.cli.job_options import JobCommand, job_from, job_options
from hvd_elastic.cli.output import say
from hvd_elastic.mpijob.contract import ENV_ENGINE, Engine


@click.command(cls=JobCommand)
@click.option(
    "--resize",
    metavar="SECONDS:HOSTS,...",
    help="Change the number of hosts while the job runs, for example `20:1,40:4`, to see how it copes.",
)
@click.option(
    "--engine",
    type=click.Choice([engine.value for engine in Engine]),
    default=Engine.HOROVOD.value,
    envvar=ENV_ENGINE,
    show_default=True,
    help="What the processes speak to each other with: Horovod, or torch.distributed, which needs no Horovod.",
)
@job_options
def command(file: str | None, flags: Mapping[str, object], resize: str | None, engine: str) -> None:
    """Run a job on this machine, without a cluster, root or ssh.

    `workers.max` local hosts warm up, each with the entry point of a worker pod. Training starts when `workers.start`
    of them are ready. The launcher, discovery and the standby are the same as in a cluster. Ends with the job's exit
    code.
    """
    from hvd_elastic.local.local_checks import local_problems
    from hvd_elastic.local.local_run import parse_resizes, run_job

    chosen = Engine(engine)
    check = partial(local_problems, engine=chosen)
    spec = job_from(file, flags, defaults={"name": "local", "launcher": "launch"}, also=check)
    spec = spec.model_copy(update={"env": {**spec.env, ENV_ENGINE: chosen}})
    code = run_job(spec, resizes=parse_resizes(resize), say=say)
    sys.exit(code)
