"""`hvd-elastic horovodrun`: the stock launcher, begun again in place when its workers were taken away."""

import logging
import os
import sys
from typing import Final

import click

from hvd_elastic.launcher.launcher_log import configure
from hvd_elastic.mpijob.contract import ENV_ENGINE, ENV_LOG_FORMAT, Engine

logger = logging.getLogger("hvd_elastic.launcher")

_NO_TORCH: Final = "horovodrun's workers find each other by Horovod alone; hvd-elastic launch takes the same flags"
_WAYS_OUT: Final = "build it with `hvd-elastic install-horovod`, or write `launcher: launch`"


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False, "help_option_names": ["--help"]}
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="HOROVODRUN_ARGUMENTS... COMMAND...")
def command(arguments: tuple[str, ...]) -> None:
    """Run `horovodrun` with these arguments, beside the discovery sidecar.

    Stock horovodrun ends when all its workers were taken away. Then it is started again, and begins as soon as
    `--min-np` processes fit. Ends with the script's own exit code, 71 (reset limit), horovodrun's, or 128 + a signal.
    """
    from hvd_elastic.horovod.patch_set import SAFE_PATCH, installed_patches
    from hvd_elastic.launcher.horovodrun.horovodrun_command import parse
    from hvd_elastic.launcher.horovodrun.supervisor import supervise

    if os.environ.get(ENV_ENGINE) == Engine.TORCH:
        raise click.UsageError(f"{ENV_ENGINE}={Engine.TORCH}: {_NO_TORCH}")
    job = parse(arguments)
    configure(verbose=False, as_json=os.environ.get(ENV_LOG_FORMAT) == "json")
    if SAFE_PATCH not in installed_patches():
        logger.warning("this Horovod runs what anyone sends to the launcher's port (CVE-2024-10190): %s", _WAYS_OUT)
    finish = supervise(job)
    if finish.exit_code:
        logger.error("the job failed with %d: %s", finish.exit_code, finish.reason)
    sys.exit(finish.exit_code)
