"""Who may write below a prefix: always the same job, and of that job only the newest claim.

Two small objects record it. `owner.json` is written once, by the first job. `latest` is a register that is updated by
compare-and-swap: it names the newest epoch (of claims, not of training) and the newest checkpoint. Opening the prefix
moves it to the next epoch. The former writer can then no longer update it, and so learns that it has a successor::

    epoch 4, checkpoint A  ──(open: epoch + 1)──►  epoch 5, checkpoint A  ──(save)──►  epoch 5, checkpoint B
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Final, Self

from hvd_elastic.trainer.checkpoint.errors import CorruptError, FencedError, PrefixOwnedError, StoreError
from hvd_elastic.trainer.checkpoint.format.checkpoint_manifest import FOLDER, CheckpointId
from hvd_elastic.trainer.checkpoint.format.sealed_json import read_sealed, seal, unseal
from hvd_elastic.trainer.checkpoint.stores.store import Store

OWNER: Final = "owner.json"
LATEST: Final = "latest"
MOST_SUPERSEDED: Final = 64
"""Superseded launchers that the register remembers. To be forgotten, a launcher would need 64 successors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The first claim of a prefix."""

    job: str
    nonce: str
    """Random; in every manifest, so that one copied from another prefix is noticed."""
    time: float
    """UNIX seconds of the claim."""

    def encode(self) -> bytes:
        """Serialize."""
        return seal(asdict(self))

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read one back. Raises CorruptError."""
        try:
            return cls(**unseal(data))
        except TypeError as error:
            raise CorruptError(f"it has another format: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Content of `latest`."""

    epoch: int
    incarnation: str
    superseded: tuple[str, ...]
    """Launchers whose claims came before this one, newest last."""
    nonce: str
    """Random, different for each claim: no two writers ever write the same bytes."""
    time: float
    """UNIX seconds of the claim."""
    manifest: str | None = None
    """Key of the newest checkpoint's manifest; None before the first checkpoint."""
    step: int | None = None
    """Step of that checkpoint."""

    def encode(self) -> bytes:
        """Serialize."""
        return seal(asdict(self))

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read one back. Raises CorruptError."""
        try:
            body = unseal(data)
            return cls(**{**body, "superseded": tuple(body["superseded"])})
        except (KeyError, TypeError, CorruptError) as error:
            raise CorruptError(f"{error}: delete it; the checkpoints are found without it") from error


def next_head(head: Head | None, *, incarnation: str, nonce: str, time: float, written: int) -> Head:
    """Return the content of `latest` for a new claim.

    Args:
        head: the present content; None if there is none.
        incarnation: identity of the launcher. An empty string means unknown and always counts as newer.
        nonce: random, for this claim only.
        time: UNIX seconds of the claim.
        written: greatest epoch that any manifest names, in case `latest` was deleted.

    Raises:
        FencedError: `incarnation` was superseded.
    """
    if head is None:
        return Head(epoch=written + 1, incarnation=incarnation, superseded=(), nonce=nonce, time=time)
    if incarnation in head.superseded:
        raise FencedError(f"launcher {incarnation} was superseded by {head.incarnation}: this process must end")
    superseded = head.superseded
    if head.incarnation and head.incarnation != incarnation:
        superseded = (*superseded, head.incarnation)[-MOST_SUPERSEDED:]
    return replace(
        head, epoch=max(head.epoch, written) + 1, incarnation=incarnation, superseded=superseded, nonce=nonce, time=time
    )


@dataclass(slots=True)
class Claim:
    """The right to write below a prefix, until the next claim."""

    store: Store
    owner: Owner
    head: Head
    version: str

    @classmethod
    def acquire(
        cls,
        store: Store,
        *,
        job: str,
        incarnation: str,
        nonce: str,
        time: float,
        check_wanted: Callable[[], object] = lambda: None,
    ) -> Self:
        """Claim the prefix for `job`, and its next epoch for this process.

        `check_wanted` raises if the claim is not wanted any more. It is called between reading `latest` and moving it:
        a successor that claims after the call makes the move fail.

        Raises:
            PrefixOwnedError: another job owns the prefix.
            FencedError: this launcher was superseded.
            StoreError: the store failed, or does not honour conditional writes.
        """
        owner = _claim_prefix(store, Owner(job=job, nonce=nonce, time=time))
        store.check_conditional_writes(OWNER, owner.encode())
        while True:
            head, existing = read_sealed(store, LATEST, Head.decode) or (None, None)
            claimed = next_head(head, incarnation=incarnation, nonce=nonce, time=time, written=_greatest_epoch(store))
            check_wanted()
            version = store.replace(LATEST, claimed.encode(), version=existing)
            if version is not None:
                return cls(store, owner, claimed, version)

    def check(self) -> None:
        """Raise FencedError if there is a newer claim. One may still come before the next write: see `advance`."""
        head, _ = read_sealed(self.store, LATEST, Head.decode) or (None, None)
        if head is None or (head.epoch, head.nonce) != (self.head.epoch, self.head.nonce):
            raise _fenced_error(head, self.head)

    def advance(self, *, manifest: str, step: int) -> None:
        """Move `latest` to a new checkpoint by compare-and-swap. Only the newest claim can do so.

        Raises:
            FencedError: there is a newer claim. This process must not delete anything now.
        """
        head = replace(self.head, manifest=manifest, step=step)
        version = self.store.replace(LATEST, head.encode(), version=self.version)
        if version is None:
            self.check()
            raise StoreError(f"`{LATEST}` belongs to this process, but it cannot be updated")
        self.head, self.version = head, version


def _fenced_error(head: Head | None, own: Head) -> FencedError:
    """Return the error that names the newer claim."""
    if head is None:
        return FencedError(f"`{LATEST}` was deleted during epoch {own.epoch}, the claim of this process")
    return FencedError(
        f"launcher {head.incarnation or 'unknown'} has claimed the checkpoints (epoch {head.epoch}, ours {own.epoch}):"
        " this process no longer writes. If two jobs of the same name are running, give each its own prefix"
    )


def _claim_prefix(store: Store, owner: Owner) -> Owner:
    if store.create(OWNER, owner.encode()):
        return owner
    found = read_sealed(store, OWNER, Owner.decode)
    if found is None:
        raise StoreError(f"`{OWNER}` was deleted while the prefix was being claimed: try again")
    existing = found[0]
    if existing.job != owner.job:
        raise PrefixOwnedError(
            f"the prefix belongs to job {existing.job!r}, this is {owner.job!r}: choose another prefix, or name the job"
            f" {existing.job!r} to resume it, or delete the prefix"
        )
    return existing


def _greatest_epoch(store: Store) -> int:
    return max(
        (checkpoint.epoch for key in store.keys(FOLDER) if (checkpoint := CheckpointId.from_key(key))), default=0
    )
