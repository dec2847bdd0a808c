"""`hvd-elastic run`."""

import os
import sys
from collections.abc import Mapping

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
@job_options
def command(file: str | None, flags: Mapping[str, object], resize: str | None) -> None:
    """Run a job on this machine, without a cluster, root or ssh.

    `workers.max` local hosts warm up, each with the entry point of a worker pod. Training starts when `workers.start`
    of them are ready. The launcher, discovery and the standby are the same as in a cluster. Ends with the job's exit
    code.
    """
    from hvd_elastic.local.local_checks import local_problems
    from hvd_elastic.local.local_run import parse_resizes, run_job

    engine = os.environ.get(ENV_ENGINE) or Engine.HOROVOD.value
    defaults = {"name": "local", "launcher": "launch", "engine": engine}
    spec = job_from(file, flags, defaults=defaults, also=local_problems)
    code = run_job(spec, resizes=parse_resizes(resize), say=say)
    sys.exit(code)
