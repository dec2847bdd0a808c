"""`hvd-elastic checkpoints`: what is below a prefix, read beside the job that writes it."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from hvd_elastic.cli.output import Column, Format, Result, output_option, show

if TYPE_CHECKING:
    from hvd_elastic.trainer.checkpoint import Checkpoint, Rejected

_COLUMNS = (
    Column(title="step", key="step", right=True),
    Column(title="written", key="written"),
    Column(title="MiB", key="mib", right=True),
    Column(title="workers", key="workers", right=True),
    Column(title="reason", key="reason"),
    Column(title="manifest", key="manifest"),
    Column(title="status", key="status"),
)
_SAMPLES = Column(title="samples", key="samples")


@click.command()
@click.argument("url")
@click.option(
    "--verify", is_flag=True, help="Read every byte, compare it to its SHA-256, and say which samples were used."
)
@output_option(Format.TABLE, Format.JSON, Format.YAML, Format.NAME)
def command(*, url: str, verify: bool, output: Format) -> None:
    """List the durable checkpoints at URL, newest first.

    URL is the prefix of one job: that of its description with NAMESPACE/NAME added. Nothing is claimed or written.
    """
    from hvd_elastic.trainer.checkpoint import read_checkpoints

    with read_checkpoints(url) as reader:
        rows = [_row(each, verify=verify) for each in reader.checkpoints()]
    columns = (*_COLUMNS, _SAMPLES) if verify else _COLUMNS
    show(Result(rows=rows, columns=columns, names=[row["manifest"] for row in rows]), output)


def _row(found: "Checkpoint | Rejected", *, verify: bool) -> dict[str, Any]:
    from hvd_elastic.cli.checkpoint_samples import verified_samples
    from hvd_elastic.trainer.checkpoint import CorruptError, Rejected

    if isinstance(found, Rejected):
        return {"manifest": found.manifest, "status": found.why}
    status, samples = "not read", ""
    if verify:
        try:
            samples = verified_samples(found)
            status = "verified"
        except CorruptError as error:
            status = str(error)
    return {
        "step": found.step,
        "written": datetime.fromtimestamp(found.time, UTC).isoformat(timespec="seconds"),
        "mib": round(found.size_bytes / (1 << 20), 1),
        "workers": found.world_size,
        "reason": found.reason,
        "manifest": found.name,
        "status": status,
        **({"samples": samples} if verify else {}),
    }
