"""`hvd-elastic tensorboard`: the events of a job, in a browser."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from hvd_elastic.cli.cluster_options import ChosenCluster, cluster_options
from hvd_elastic.cli.output import Format, Result, of_manifests, output_option, say, show

if TYPE_CHECKING:
    from hvd_elastic.client.operations.tensorboard import TensorBoard


@click.command
@click.argument("job")
@cluster_options
@click.option("--image", help="Image with tensorboard and python3; by default the job's own.")
@click.option(
    "--port", type=click.IntRange(1, 65535), default=6006, show_default=True, help="Port on this machine, as printed."
)
@click.option("--delete", "remove", is_flag=True, help="Remove what this verb made, and nothing else.")
@click.option(
    "--dry-run",
    type=click.Choice(["client", "server"]),
    help="Write nothing: `client` prints the manifests, `server` has the cluster check them.",
)
@click.option("--force-conflicts", is_flag=True, help="Take over fields that somebody else has set.")
@output_option(Format.TEXT, Format.JSON, Format.YAML, Format.NAME, default=Format.TEXT, flag="--output")
def command(
    *,
    job: str,
    chosen: ChosenCluster,
    image: str | None,
    port: int,
    remove: bool,
    dry_run: str | None,
    force_conflicts: bool,
    output: Format,
) -> None:
    """Run TensorBoard over the events in a job's `output`, and print the command and the URL that reach it.

    It listens on its pod's loopback alone, and only reads the volume. It goes with the job, or with --delete.
    """
    from hvd_elastic.client.operations.tensorboard import apply_tensorboard, delete_tensorboard, plan_tensorboard

    cluster = chosen.connect()
    if remove:
        if image or force_conflicts:
            raise click.UsageError("--delete takes neither --image nor --force-conflicts")
        _show_deleted(delete_tensorboard(cluster, job, dry_run=dry_run is not None), job, output, tried=bool(dry_run))
        return
    board = plan_tensorboard(cluster, job, image=image)
    if dry_run == "client":
        manifests = [one.after for one in board.objects]
        show(of_manifests(manifests), Format.YAML if output is Format.TEXT else output)
        return
    done = apply_tensorboard(cluster, board, force=force_conflicts, dry_run=dry_run == "server")
    _show_applied(done, output, reach=_reach(done, port, chosen.context), tried=dry_run == "server")


def _show_applied(done: "TensorBoard", output: Format, *, reach: str, tried: bool) -> None:
    for one in done.objects:
        say(f"{one.name} {one.change}{' (only checked)' if tried else ''}")
    if done.one_node:
        say(
            f"{done.claim} is ReadWriteOnce: one node at a time mounts it. While workers run, TensorBoard starts only "
            "on theirs, so it may wait"
        )
    _show([one.after for one in done.objects], "" if tried else reach, output)


def _show_deleted(gone: Sequence[Mapping[str, Any]], job: str, output: Format, *, tried: bool) -> None:
    if not gone:
        say(f"{job} has no TensorBoard")
    lines = [f"{one['kind'].lower()}/{one['metadata']['name']}" for one in gone]
    _show(gone, "".join(f"{line} {'would go' if tried else 'deleted'}\n" for line in lines), output)


def _show(manifests: Sequence[Mapping[str, Any]], text: str, output: Format) -> None:
    result = of_manifests(manifests)
    show(
        Result(data=result.data, documents=result.documents, names=result.names, written={Format.TEXT: lambda: text}),
        output,
    )


def _reach(board: "TensorBoard", port: int, context: str | None) -> str:
    from shlex import join

    from hvd_elastic.mpijob.manifests.supporting.tensorboard import PORT

    there = ["--context", context] if context else []
    words = ["kubectl", *there, "port-forward", "-n", board.namespace, f"deployment/{board.name}", f"{port}:{PORT}"]
    return f"{join(words)}\nhttp://localhost:{port}\n"
