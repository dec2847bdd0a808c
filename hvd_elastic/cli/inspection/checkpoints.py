"""`hvd-elastic checkpoints`: what is below a prefix, read beside the job that writes it; and the way out and in."""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from hvd_elastic.cli.default_command import GroupWithDefault
from hvd_elastic.cli.inspection.checkpoint_place import place_argument
from hvd_elastic.cli.output import Column, Format, Result, output_option, say, show, table
from hvd_elastic.mpijob.contract import Exit
from hvd_elastic.system.plain_words import count_words, printable

if TYPE_CHECKING:
    from hvd_elastic.trainer.checkpoint import Checkpoint, CheckpointReader, Rejected

_LISTED: Final = (
    Column(title="step", key="step", right=True),
    Column(title="written", key="written"),
    Column(title="MiB", key="mib", right=True),
    Column(title="workers", key="workers", right=True),
    Column(title="reason", key="reason"),
    Column(title="manifest", key="manifest"),
    Column(title="status", key="status"),
)
_SAMPLES = Column(title="samples", key="samples")

_HELD: Final = (
    Column(title="name", key="name"),
    Column(title="type", key="type"),
    Column(title="shape", key="shape"),
    Column(title="bytes", key="bytes", right=True),
    Column(title="value", key="value"),
)

_FORMATS: Final = ("safetensors", "torch", "dcp")


@click.group(cls=GroupWithDefault, default="list")
def command() -> None:
    """List, show, verify, export and import durable checkpoints.

    JOB is the name of a job in the cluster. URL is the prefix of one: that of its description with /NAMESPACE/NAME
    added. VERSION is the number of a step or the name of a manifest, as `list` shows them; by default the newest.
    Nothing but `import` claims or writes.

    Without a command it is `list`.
    """


@command.command("list")
@place_argument
@output_option(Format.TABLE, Format.JSON, Format.YAML, Format.NAME)
def list_command(*, url: str, output: Format) -> None:
    """List the checkpoints of JOB or at URL, newest first. `latest` is the one with which the job would go on."""
    from hvd_elastic.trainer.checkpoint import read_checkpoints

    with read_checkpoints(url) as reader:
        latest = reader.latest_name()
        rows = [_row(each, latest) for each in reader.checkpoints()]
    show(Result(rows=rows, columns=_LISTED, names=[row["manifest"] for row in rows]), output)


@command.command()
@place_argument
@click.argument("version", required=False)
@output_option(Format.TABLE, Format.JSON, Format.YAML, Format.NAME)
def verify(*, url: str, version: str | None, output: Format) -> None:
    """Read every byte of the checkpoints at URL, or of one VERSION, and compare it to its SHA-256.

    Says which samples the training has used, too, and whether each was used once. The exit code is 1 if a checkpoint is
    damaged, or if its samples are not what its position says.
    """
    from hvd_elastic.cli.inspection.checkpoint_samples import WRONG
    from hvd_elastic.trainer.checkpoint import read_checkpoints

    with read_checkpoints(url) as reader:
        latest = reader.latest_name()
        found = reader.checkpoints() if version is None else (_find(reader, url, version),)
        rows = [_verified(each, latest) for each in found]
    show(Result(rows=rows, columns=(*_LISTED, _SAMPLES), names=[row["manifest"] for row in rows]), output)
    if any(row["status"] != "whole" or row["samples"].startswith(WRONG) for row in rows):
        sys.exit(Exit.ERROR)


@command.command("show")
@place_argument
@click.argument("version", required=False)
@output_option(Format.TABLE, Format.JSON, Format.YAML, Format.NAME)
def show_command(*, url: str, version: str | None, output: Format) -> None:
    """Show what a checkpoint holds: names, shapes, types, bytes; how far the job was; when, and what wrote it.

    Only the beginning of the checkpoint is read.
    """
    from hvd_elastic.trainer.checkpoint import read_checkpoints
    from hvd_elastic.trainer.state.durable.stored_leaves import leaves_of
    from hvd_elastic.trainer.state.saved_state import SavedState

    with read_checkpoints(url) as reader:
        found = _find(reader, url, version)
        outline = found.outline()
    saved = SavedState.of(found, outline.values)
    rows = [leaf.row() for leaf in leaves_of(saved)]
    shown = [{**row, "shape": "scalar" if row["shape"] == [] else row["shape"]} for row in rows]
    facts = {**_row(found, None), "progress": saved.words, "writer": dict(outline.writer)}
    del facts["status"]
    show(
        Result(
            data={**facts, "content": rows},
            names=[row["name"] for row in rows],
            written={Format.TABLE: lambda: _heading(facts) + table(shown, _HELD)},
        ),
        output,
    )


def _heading(facts: dict[str, Any]) -> str:
    writer = ", ".join(f"{name} {version}" for name, version in facts["writer"].items())
    workers = count_words(facts["workers"], "worker")
    lines = (
        f"{facts['progress']}, stored {facts['written']} with {workers} ({facts['reason']})",
        f"{facts['manifest']}, {facts['mib']} MiB, written by {writer or 'an earlier version'}",
        "",
    )
    return "".join(f"{printable(line)}\n" for line in lines)


@command.command()
@place_argument
@click.argument("version", required=False)
@click.option("--to", "path", type=click.Path(path_type=Path), required=True, help="The file; with dcp the folder.")
@click.option("--format", "file_format", type=click.Choice(_FORMATS),
              help="safetensors, torch.save, or torch.distributed.checkpoint; by default as FILE ends.")  # fmt: skip
@click.option("--only", multiple=True, metavar="NAME",
              help="A name of the State, such as model. One: the file holds just its state_dict().")  # fmt: skip
@click.option("--force", is_flag=True, help="Replace what is there.")
def export(
    *, url: str, version: str | None, path: Path, file_format: str | None, only: Sequence[str], force: bool
) -> None:
    """Write a checkpoint to a file that others read.

    `export URL --to model.safetensors --only model` writes the weights of the model. Without --only, everything by
    name. Named tuples, enumerations, arrays and the like become tuples, texts and tensors.
    """
    from hvd_elastic.trainer.checkpoint.exchange.file_formats import FileFormat, format_of_name, write_file
    from hvd_elastic.trainer.state.durable.exported_state import content_of, facts_of
    from hvd_elastic.trainer.state.saved_state import read_state

    chosen = FileFormat(file_format) if file_format else format_of_name(path)
    saved = read_state(url, version, stand_ins=True)
    write_file(path, content_of(saved, only), chosen, facts=facts_of(saved), force=force)
    say(f"{path}: {', '.join(only or saved)} of {saved.words}, as {chosen}")


@command.command("import")
@click.argument("file")
@click.option("--to", "url", required=True, metavar="URL", help="Empty prefix of the job that shall begin with it.")
@click.option("--only", multiple=True, metavar="NAME", help="A name in the file, such as model; by default all.")
@click.option("--job", metavar="NAMESPACE/NAME", help="The job; by default the end of URL.")
@click.option("--strict/--no-strict", default=True, show_default=True,
              help="Refuse a file with values that no checkpoint can hold, or leave these out.")  # fmt: skip
def import_command(*, file: str, url: str, only: Sequence[str], job: str | None, strict: bool) -> None:
    """Make the first checkpoint of a job from FILE: safetensors, torch.save, torch.distributed.checkpoint.

    FILE is a path, file:///path or the URL of a file in a bucket. A file with nothing but tensors holds the weights of
    `model`. In any other, the names on top are those of the State. What the State has beside them begins as the script
    made it.
    """
    from hvd_elastic.trainer.state.durable.imported_state import import_file

    done = import_file(file, url, job=job, only=only, strict=strict)
    for each in done.left_out:
        say(f"left out: {each}")
    say(f"{url}: {', '.join(done.names)} at step {done.step}, for job {done.job}")


def _find(reader: "CheckpointReader", url: str, version: str | None) -> "Checkpoint":
    from hvd_elastic.trainer.checkpoint import CheckpointNotFoundError

    try:
        return reader.newest() if version is None else reader.find(version)
    except CheckpointNotFoundError as error:
        raise CheckpointNotFoundError(f"{url.partition('?')[0]}: {error}") from error


def _row(found: "Checkpoint | Rejected", latest: str | None) -> dict[str, Any]:
    from hvd_elastic.trainer.checkpoint import Rejected

    if isinstance(found, Rejected):
        return {"manifest": found.manifest, "status": found.why}
    return {
        "step": found.step,
        "written": datetime.fromtimestamp(found.time, UTC).isoformat(timespec="seconds"),
        "mib": round(found.size_bytes / (1 << 20), 1),
        "workers": found.world_size,
        "reason": found.reason,
        "manifest": found.name,
        "status": "latest" if found.name == latest else None,
    }


def _verified(found: "Checkpoint | Rejected", latest: str | None) -> dict[str, Any]:
    from hvd_elastic.cli.inspection.checkpoint_samples import verified_samples
    from hvd_elastic.trainer.checkpoint import CorruptError, Rejected

    row = _row(found, latest)
    if isinstance(found, Rejected):
        return row
    try:
        return {**row, "status": "whole", "samples": verified_samples(found)}
    except CorruptError as error:
        return {**row, "status": str(error)}
