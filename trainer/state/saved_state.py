"""What a job has stored, for whoever trains nothing: a notebook, an export. Needs torch, and no Horovod."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Self

from hvd_elastic.trainer.checkpoint import Checkpoint, CheckpointNotFoundError, CorruptError, read_checkpoints
from hvd_elastic.trainer.checkpoint.reading import NOTHING_THERE
from hvd_elastic.trainer.data.progress import TRAIN, Progress, progress_words, upgrade

_TREE: Final = frozenset({"objects", "values", "progress"})
"""What the content of a checkpoint has that a `State` wrote."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SavedState(Mapping[str, Any]):
    """One checkpoint, by the names that the State was given.

    What had a `state_dict()` (models, optimizers, schedulers) is that dictionary; everything else is the value itself.
    Tensors are on the CPU. `len()`, iteration and `in` are those of the names.
    """

    content: Mapping[str, Any]
    """What is stored under each name."""
    objects: frozenset[str]
    """Names of what is loaded with `load_state_dict()`."""
    progress: Progress | None
    """How far the job was. None: no `State` wrote the checkpoint."""
    randomness: Mapping[str, Any]
    """States of the random number generators."""
    step: int
    """Number of commits when it was stored."""
    world_size: int
    """Processes that trained when it was stored."""
    time: datetime
    """When it was stored, in UTC."""
    reason: str
    """Why it was stored: "interval", "end of training" ..."""
    name: str
    """Name of the checkpoint, as `hvd-elastic checkpoints` lists it."""

    @classmethod
    def of(cls, checkpoint: Checkpoint, tree: dict[str, Any]) -> Self:
        progress = None
        content, objects, randomness = tree, frozenset[str](), {}
        if tree.keys() >= _TREE:
            tree = upgrade(tree)
            content = {**tree["objects"], **tree["values"]}
            objects, randomness = frozenset(tree["objects"]), tree.get("randomness", {})
            progress = Progress.from_state_dict(tree["progress"])
        return cls(
            content=content,
            objects=objects,
            progress=progress,
            randomness=randomness,
            step=checkpoint.step,
            world_size=checkpoint.world_size,
            time=datetime.fromtimestamp(checkpoint.time, UTC),
            reason=checkpoint.reason,
            name=checkpoint.name,
        )

    @property
    def words(self) -> str:
        """`step 75 (epoch 3, 384 of 1,437 samples)`."""
        if self.progress is None:
            return f"step {self.step}"
        return progress_words(self.progress, self.content.get("epoch"), TRAIN)

    def __getitem__(self, name: str) -> Any:
        """Return what is stored under a name. Raises KeyError, with the names that there are."""
        try:
            return self.content[name]
        except KeyError:
            raise KeyError(f"{name}: the checkpoint has {', '.join(self.content) or 'nothing'}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self.content)

    def __len__(self) -> int:
        return len(self.content)

    def __contains__(self, name: object) -> bool:
        return name in self.content

    def __repr__(self) -> str:
        return f"<SavedState: {self.words}, {self.time:%Y-%m-%d %H:%M:%S} UTC: {', '.join(self.content)}>"


def load(url: str, version: int | str | None = None) -> SavedState:
    """Read a checkpoint of a job, whether it runs or not. It does not notice.

    Needs torch (`pip install 'hvd-elastic[train]'`) and no Horovod. Every byte is verified, and no code from the
    checkpoint is run.

    Example:
        ```python
        saved = elastic.load("s3://team-bucket/fashion/research/fashion")
        model.load_state_dict(saved["model"])
        print(saved.step, saved["epoch"], saved["best_accuracy"])
        ```

    Args:
        url: that of one job's checkpoints: of its description, with `/NAMESPACE/NAME` added.
        version: number of a step, or the name of a checkpoint, as `hvd-elastic checkpoints URL` lists them. Default
            None: the newest one that verifies.

    Raises:
        CheckpointNotFoundError: there is none, or none of that version; the message says which are nearest.
        CorruptError: it does not verify.
        IncompatibleError: it has a named tuple or an enumeration of the script. Import that module first.
        CheckpointUrlError: the URL cannot be used.
        StoreError: the store did not answer.
    """
    return read_state(url, version)


def read_state(url: str, version: int | str | None = None, *, stand_ins: bool = False) -> SavedState:
    """As `load`; with `stand_ins` the script's classes need not be there (`Checkpoint.load`)."""
    place = url.partition("?")[0].rstrip("/")
    with read_checkpoints(url) as reader:
        try:
            found = reader.latest(stand_ins=stand_ins) if version is None else reader.find(version)
        except CheckpointNotFoundError as error:
            raise CheckpointNotFoundError(f"{place}: {error}") from error
        if found is None:
            raise CheckpointNotFoundError(f"{place}: {NOTHING_THERE}")
        try:
            tree = found.load(stand_ins=stand_ins)
        except CorruptError as error:
            others = [str(each.step) for each in reader.checkpoints() if isinstance(each, Checkpoint)]
            raise CorruptError(
                f"{place}/{found.name} is damaged: {error}. There are checkpoints of the steps {', '.join(others)}; "
                "`hvd-elastic checkpoints verify` says which are whole"
            ) from error
    return SavedState.of(found, tree)
