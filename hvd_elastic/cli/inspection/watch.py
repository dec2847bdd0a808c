"""`hvd-elastic watch`: one job or all, live."""

import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, TypeVar

import click

from hvd_elastic.cli.cluster_options import ChosenCluster, cluster_options
from hvd_elastic.cli.output import say
from hvd_elastic.mpijob.contract import Exit
from hvd_elastic.system.plain_words import printable

if TYPE_CHECKING:
    from hvd_elastic.client.connection.cluster_client import ClusterClient

_READ_SECONDS: Final = 2.0
_T = TypeVar("_T")


@click.command
@click.argument("job", required=False)
@click.option("-A", "--all-namespaces", is_flag=True, help="Without JOB: the jobs of all namespaces.")
@cluster_options
def command(*, job: str | None, all_namespaces: bool, chosen: ChosenCluster) -> None:
    """Watch JOB, or all jobs: world size over time, workers with reasons, loss, throughput, inference that waits.

    Without a terminal it prints a line for each thing that happens. Leaving it leaves the jobs alone.
    """
    from hvd_elastic.client.job_lookup import find_job

    cluster = chosen.connect()
    if job:
        find_job(cluster, job, cluster.namespace)
    where = None if all_namespaces else cluster.namespace
    try:
        if sys.stdin.isatty() and sys.stdout.isatty():
            _watch_live(cluster, job, where)
        else:
            for line in _plain_lines(cluster, job, where):
                click.echo(printable(line))
    except KeyboardInterrupt:
        say("no longer watched; the jobs go on")
    except EOFError:
        sys.exit(Exit.ERROR)  # nobody is there who could be told


def _watch_live(cluster: "ClusterClient", job: str | None, namespace: str | None) -> None:
    from hvd_elastic.cli.clean_console import CleanConsole
    from hvd_elastic.client.watch.keyboard import Keyboard
    from hvd_elastic.client.watch.live_watch import LiveWatch

    chosen = (cluster.namespace, job) if job else None
    LiveWatch(cluster, CleanConsole(sys.stdout), job=chosen, namespace=namespace).run(Keyboard())


def _plain_lines(cluster: "ClusterClient", job: str | None, namespace: str | None) -> Iterator[str]:
    from hvd_elastic.client.object_reading import ObjectReading
    from hvd_elastic.client.report.job_list import list_job_states
    from hvd_elastic.client.watch.plain_watch import job_lines, list_lines
    from hvd_elastic.client.watch.watched_job import WatchedJobReader

    if job:
        reader = WatchedJobReader(cluster, job, cluster.namespace)
        return job_lines(_again_and_again(reader.read))
    reading = ObjectReading("MPIJob", lambda sentence: click.echo(sentence, err=True))
    return list_lines(_again_and_again(lambda: list_job_states(cluster, namespace, reading=reading)))


def _again_and_again(read: Callable[[], _T]) -> Iterator[_T]:
    """What is read now, and again each time after a while. A cluster that is away for a moment is waited for."""
    from hvd_elastic.client.connection.long_wait import LongWait

    wait = LongWait()
    while True:
        yield wait.look(read)
        time.sleep(_READ_SECONDS)
