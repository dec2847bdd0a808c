"""Makes the first checkpoint of a job from a file that others have written."""

from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import urlsplit

from hvd_elastic.trainer.checkpoint import open_checkpoints, read_checkpoints
from hvd_elastic.trainer.checkpoint.errors import CheckpointUrlError, ExchangeError, PrefixOwnedError, StoreError
from hvd_elastic.trainer.checkpoint.exchange import source
from hvd_elastic.trainer.checkpoint.exchange.file_formats import read_file
from hvd_elastic.trainer.state.durable.changed_state import IMPORTED
from hvd_elastic.trainer.state.durable.exported_state import tree_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The checkpoint that was made."""

    step: int
    job: str
    """The job that the prefix belongs to from now on, NAMESPACE/NAME."""
    names: tuple[str, ...]
    """Names of the State that it has."""
    left_out: tuple[str, ...]
    """`path: type` of each value that no checkpoint can hold."""


def import_file(
    place: str, url: str, *, job: str | None = None, only: Collection[str] = (), strict: bool = True
) -> Imported:
    """Store what a file holds as the first checkpoint below an empty prefix. A job of that prefix goes on from it.

    Args:
        place: a file of safetensors or `torch.save`, or a folder of torch.distributed.checkpoint; its path or URL.
        url: the prefix of one job, as `open_checkpoints` takes it.
        job: NAMESPACE/NAME of the job. Default None: the end of the URL.
        only: names to take from the file. Default none: all.
        strict: a value that no checkpoint can hold is an error. Default True; with False it is left out.

    Raises:
        ExchangeError: the file cannot be read, or not as a whole with `strict`.
        CorruptError: the file is damaged.
        PrefixOwnedError: a job has the prefix. Nothing was written.
        CheckpointUrlError: the URL cannot be used, or does not tell the job.
        StoreError: the store failed. Nothing is visible.
    """
    job = job or _job_of(url)
    _check_empty(url)
    with source.opened(place) as path:
        if path is None:
            raise ExchangeError(f"{place}: there is neither a file nor a folder of torch.distributed.checkpoint")
        imported = tree_of(read_file(path), only=only)
        if strict and imported.left_out:
            raise ExchangeError(
                f"{place} holds what no checkpoint can hold; to leave it out, add --no-strict:\n"
                + "\n".join(imported.left_out)
            )
        _store(url, job, imported.tree, imported.step)
    names = (*imported.tree["objects"], *imported.tree["values"])
    return Imported(step=imported.step, job=job, names=names, left_out=imported.left_out)


def _job_of(url: str) -> str:
    parts = urlsplit(url).path.strip("/").split("/")
    if len(parts) < 2:
        raise CheckpointUrlError(
            f"{url} does not end with /NAMESPACE/NAME, the job's: add it, or name the job with --job"
        )
    return "/".join(parts[-2:])


def _check_empty(url: str) -> None:
    with read_checkpoints(url) as reader:
        owner = reader.job()
    if owner is not None:
        raise PrefixOwnedError(
            f"{url} is not empty: it belongs to job {owner!r}, whose next start would go on from the import. Choose"
            " another prefix, or delete what is there"
        )


def _store(url: str, job: str, tree: dict[str, object], step: int) -> None:
    checkpoints = open_checkpoints(url, job=job, incarnation="")
    try:
        checkpoints.save(tree, step=step, world_size=0, reason=IMPORTED)
        if not checkpoints.flush():
            raise checkpoints.failure or StoreError(f"{url}: {checkpoints.counts.error}")
    finally:
        checkpoints.close()
