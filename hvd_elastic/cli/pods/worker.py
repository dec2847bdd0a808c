"""`hvd-elastic worker`: PID 1 of a worker pod."""

import contextlib
import os
import signal
import sys

import click

from hvd_elastic import logs
from hvd_elastic.cli.pods.pod_user import enter_user
from hvd_elastic.mpijob.contract import ENV_LOG_FORMAT, READY_PORT, SSH_PORT
from hvd_elastic.system import child_processes
from hvd_elastic.worker import efa_libraries, sshd
from hvd_elastic.worker.adoption.adopted_environment import with_interfaces
from hvd_elastic.worker.entrypoint import EntryPoint
from hvd_elastic.worker.pod_settings import PodSettings


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--no-sshd", is_flag=True, help="Do not start sshd: the launcher runs on this machine.")
@click.option(
    "--die-with-parent",
    is_flag=True,
    help="End at once, with all descendants, when the thread that started this process has ended.",
)
@click.option("--ready-port", type=click.IntRange(1, 65535), default=READY_PORT, show_default=True)
@click.option("--ssh-port", type=click.IntRange(1, 65535), default=SSH_PORT, show_default=True)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def command(*, no_sshd: bool, die_with_parent: bool, ready_port: int, ssh_port: int, command: tuple[str, ...]) -> None:
    """Keep a warm standby of the job's COMMAND for the launcher to adopt. This is PID 1 of a worker pod.

    It runs COMMAND up to its first hvd.init(), opens the readiness port, and accepts the launcher's command through
    the `adopt` file of its run folder. On SIGTERM it ends when training has left; a second SIGTERM ends it at once.
    """
    if die_with_parent:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored until the entry point has a handler
        child_processes.die_with_parent(signal.SIGHUP)
        if os.getppid() == 1:
            sys.exit(0)
    logs.configure(os.environ.get(ENV_LOG_FORMAT) or logs.LogFormat.TEXT)
    settings = PodSettings.read(os.environ)
    if settings.efa:
        efa_libraries.require(settings.efa, os.environ)
    with contextlib.suppress(OSError):  # the entry point says what is wrong with its folder
        enter_user(settings.run_dir, os.getuid(), os.getgid())
    environment, server = with_interfaces(os.environ), None if no_sshd else sshd.command(ssh_port)
    worker = EntryPoint(settings, command, environment, sshd=server, ready_port=ready_port)
    sys.exit(worker.run())
