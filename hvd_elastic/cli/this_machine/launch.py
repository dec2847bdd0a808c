"""`hvd-elastic launch`: horovodrun's elastic flags with a driver of our own."""

import logging
import sys
from pathlib import Path
from typing import Any

import click

from hvd_elastic.launcher.launch_settings import LaunchSettings, OnError
from hvd_elastic.launcher.launcher_log import configure
from hvd_elastic.mpijob.contract import ENV_LOG_FORMAT
from hvd_elastic.policy.allowed_sizes import parse_sizes

logger = logging.getLogger("hvd_elastic.launcher")


def _interfaces(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for value in values for name in value.split(",") if name)


@click.command(context_settings={"allow_interspersed_args": False, "show_default": True})
@click.option("-np", "--num-proc", "num_proc", type=int, required=True, help="Processes needed before training starts.")
@click.option("--min-np", "--min-num-proc", "min_num_proc", type=int, help="Processes needed to go on. Default: -np.")
@click.option("--max-np", "--max-num-proc", "max_num_proc", type=int, help="Processes at most. Default: unbounded.")
@click.option("--sizes", metavar="N,N,...", type=parse_sizes, help="The only numbers of processes to train with. "
              "Default: any.")  # fmt: skip
@click.option("--slots-per-host", type=int, help="Processes on a host for which the script prints no number.")
@click.option("--host-discovery-script", metavar="COMMAND", help="Prints HOST:SLOTS lines. For RUN_DIR/discover-hosts "
              "the snapshot beside it is watched instead.")  # fmt: skip
@click.option("-H", "--hosts", metavar="HOST:SLOTS,...", help="Hosts that never change.")
@click.option("--network-interface", "--network-interfaces", "network_interfaces", multiple=True, metavar="NAME,...",
              callback=_interfaces, help="Default: the one that leads to the first host.")  # fmt: skip
@click.option("--blacklist-cooldown-range", type=int, nargs=2, metavar="LOW HIGH", help="Seconds until a host whose "
              "process died is used again. Default: never under that name.")  # fmt: skip
@click.option("--elastic-timeout", "elastic_timeout_seconds", type=float, metavar="SECONDS",
              envvar="HOROVOD_ELASTIC_TIMEOUT",
              help="How long fewer than --min-np may fit before the job ends. Default: any time.")  # fmt: skip
@click.option("--reset-limit", type=int, help="Changes of the world before the job ends. Default: unbounded.")
@click.option("--gloo-timeout-seconds", type=int, help="How long an operation waits for a silent peer. Default: 10, or "
              "HOROVOD_GLOO_TIMEOUT_SECONDS.")  # fmt: skip
@click.option("--start-timeout", "start_timeout_seconds", type=float, default=120.0, metavar="SECONDS",
              help="How long processes that hold the state wait for a newcomer.")  # fmt: skip
@click.option("--output-filename", metavar="FOLDER", help="Also write FOLDER/rank.N/stdout and stderr.")
@click.option("-prefix-timestamp", "--prefix-output-with-timestamp", "prefix_timestamp", is_flag=True,
              help="Print the time before each line of the workers.")  # fmt: skip
@click.option("-p", "--ssh-port", type=int, help="Default: what ssh's own configuration says.")
@click.option("-i", "--ssh-identity-file", metavar="FILE", help="Key for ssh. Default: what its configuration says.")
@click.option("--verbose", is_flag=True, help="Log what the launcher decides, and why.")
@click.option("--gloo", is_flag=True, help="Accepted for horovodrun's sake: elastic jobs have no other controller.")
@click.option("--disable-cache", is_flag=True, help="Accepted for horovodrun's sake: nothing is cached.")
@click.option("--on-error", type=click.Choice([kind.value for kind in OnError]), default=OnError.END.value,
              help="When the script ends with a code of its own: `end` the job with it, or `restart` without that "
              "host, as horovodrun does.")  # fmt: skip
@click.option("--local-hosts", type=click.Path(path_type=Path), metavar="FOLDER", help="Hosts are folders in this one; "
              "commands run on this machine, without ssh.")  # fmt: skip
@click.option("--always-ssh", is_flag=True, help="Use ssh for this machine's own addresses, too.")
@click.option("--hang-timeout", "hang_timeout_seconds", type=float, default=600.0, metavar="SECONDS", help="How long a "
              "process that lives but does not come may keep the others waiting.")  # fmt: skip
@click.option("--settle", "settle_seconds", type=float, default=0.5, metavar="SECONDS", help="At the start: wait this "
              "long for more hosts if fewer than --max-np processes fit.")  # fmt: skip
@click.option("--run-dir", type=click.Path(path_type=Path), metavar="FOLDER",
              help="The launcher's own files. Default: HVD_ELASTIC_RUN_DIR or /run/hvd-elastic.")  # fmt: skip
@click.option("--metrics-port", type=int, help="Serve Prometheus metrics and the status. Default: off.")
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", envvar=ENV_LOG_FORMAT,
              help="Log lines for people, or for a collector.")  # fmt: skip
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def command(**flags: Any) -> None:
    """Run COMMAND on every host and keep it training while hosts come and go.

    Takes horovodrun's elastic flags. Ends with 0, the script's own exit code, 70 (too few workers for too long), 71
    (reset limit), 72 (no process left that holds the state), or 128 + a signal.
    """
    configure(verbose=flags["verbose"], as_json=flags.pop("log_format") == "json")
    for accepted in ("gloo", "disable_cache"):
        del flags[accepted]
    if flags["run_dir"] is None:
        del flags["run_dir"]
    flags["on_error"], flags["sizes"] = OnError(flags["on_error"]), flags["sizes"] or ()
    settings = LaunchSettings(**flags)
    settings.check()
    from hvd_elastic.launcher import launch

    outcome = launch(settings)
    if outcome.exit_code:
        logger.error("the job failed with %d: %s", outcome.exit_code, outcome.reason)
    sys.exit(outcome.exit_code)
