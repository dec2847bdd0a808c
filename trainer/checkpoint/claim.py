"""Who may write below a prefix: one job for ever, and of that job the newest claim only.

Two small objects carry it. `owner.json` is written once, by the first job. `latest` is a register that is moved by
compare-and-swap: it names the newest epoch and the newest checkpoint. Opening the prefix moves it to the next epoch, so
the writer before can move it no more and learns that it has a successor::

    epoch 4, checkpoint A  ──(open: epoch + 1)──►  epoch 5, checkpoint A  ──(save)──►  epoch 5, checkpoint B
"""

from dataclasses import asdict, dataclass, replace
from typing import Final, Self

from hvd_elastic.trainer.checkpoint.errors import CorruptError, FencedError, PrefixOwnedError, StoreError
from hvd_elastic.trainer.checkpoint.format.checkpoint_manifest import FOLDER, CheckpointKey
from hvd_elastic.trainer.checkpoint.format.sealed_json import read_sealed, seal, unseal
from hvd_elastic.trainer.checkpoint.stores.store import Store

OWNER: Final = "owner.json"
LATEST: Final = "latest"
REMEMBERED: Final = 64
"""Superseded launchers that the register names. One that is not among them any more would need 64 successors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The first claim of a prefix."""

    job: str
    nonce: str
    """Random; in every manifest, so that one copied from elsewhere is noticed."""
    time: float

    def encode(self) -> bytes:
        """Serialise."""
        return seal(asdict(self))

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read one back. Raises CorruptError."""
        try:
            return cls(**unseal(data))
        except TypeError as error:
            raise CorruptError(f"it is of another format: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Content of `latest`."""

    epoch: int
    incarnation: str
    superseded: tuple[str, ...]
    """Launchers that had claims before this one's, newest last."""
    nonce: str
    """Random, one a claim: no two writers ever write the same bytes."""
    time: float
    """UNIX seconds of the claim."""
    manifest: str | None = None
    step: int | None = None

    def encode(self) -> bytes:
        """Serialise."""
        return seal(asdict(self))

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read one back. Raises CorruptError."""
        try:
            body = unseal(data)
            return cls(**{**body, "superseded": tuple(body["superseded"])})
        except (KeyError, TypeError, CorruptError) as error:
            raise CorruptError(f"{error}: delete it, the checkpoints are found without it") from error


def successor(head: Head | None, *, incarnation: str, nonce: str, time: float, written: int) -> Head:
    """Decide the next head.

    `written` is the greatest epoch that any manifest names, for a `latest` that was deleted. An incarnation of "" is
    unknown and always counts as a newer one.

    Raises:
        FencedError: `incarnation` was superseded.
    """
    if head is None:
        return Head(epoch=written + 1, incarnation=incarnation, superseded=(), nonce=nonce, time=time)
    if incarnation in head.superseded:
        raise FencedError(f"launcher {incarnation} was superseded by {head.incarnation}: this process must not go on")
    superseded = head.superseded
    if head.incarnation and head.incarnation != incarnation:
        superseded = (*superseded, head.incarnation)[-REMEMBERED:]
    return replace(
        head, epoch=max(head.epoch, written) + 1, incarnation=incarnation, superseded=superseded, nonce=nonce, time=time
    )


@dataclass(slots=True)
class Claim:
    """The right to write, until somebody claims after us."""

    store: Store
    owner: Owner
    head: Head
    version: str

    @classmethod
    def make(cls, store: Store, *, job: str, incarnation: str, nonce: str, time: float) -> Self:
        """Claim the prefix for `job`, and its next epoch for us.

        Raises:
            PrefixOwnedError, FencedError, StoreError.
        """
        owner = _own(store, Owner(job=job, nonce=nonce, time=time))
        store.vouch(OWNER, owner.encode())
        while True:
            head, standing = read_sealed(store, LATEST, Head.decode) or (None, None)
            coming = successor(head, incarnation=incarnation, nonce=nonce, time=time, written=_written(store))
            version = store.replace(LATEST, coming.encode(), version=standing)
            if version is not None:
                return cls(store, owner, coming, version)

    def check(self) -> None:
        """Raise FencedError if there is a newer claim. Between this and the next write one may come: see `advance`."""
        head, _ = read_sealed(self.store, LATEST, Head.decode) or (None, None)
        if head is None or (head.epoch, head.nonce) != (self.head.epoch, self.head.nonce):
            raise fenced(head, self.head)

    def advance(self, *, manifest: str, step: int) -> None:
        """Move `latest` to a new checkpoint. Only the newest claim can: the store compares and swaps.

        Raises:
            FencedError: there is a newer claim. Nothing may be deleted now.
        """
        head = replace(self.head, manifest=manifest, step=step)
        version = self.store.replace(LATEST, head.encode(), version=self.version)
        if version is None:
            self.check()
            raise StoreError(f"`{LATEST}` is ours, yet it cannot be moved")
        self.head, self.version = head, version


def fenced(head: Head | None, own: Head) -> FencedError:
    """Say who came after us."""
    if head is None:
        return FencedError(f"`{LATEST}` was deleted while epoch {own.epoch} was writing")
    return FencedError(
        f"launcher {head.incarnation or 'unknown'} has claimed the checkpoints (epoch {head.epoch}, ours {own.epoch}):"
        " this process writes no more. Two running jobs of one name? Give each a prefix of its own"
    )


def _own(store: Store, owner: Owner) -> Owner:
    if store.create(OWNER, owner.encode()):
        return owner
    found = read_sealed(store, OWNER, Owner.decode)
    if found is None:
        raise StoreError(f"`{OWNER}` was deleted while the prefix was being claimed: try again")
    standing = found[0]
    if standing.job != owner.job:
        raise PrefixOwnedError(
            f"the prefix belongs to job {standing.job!r}, this is {owner.job!r}: choose another prefix, or name the job"
            f" {standing.job!r} to resume it, or delete the prefix"
        )
    return standing


def _written(store: Store) -> int:
    return max((place.epoch for key in store.keys(FOLDER) if (place := CheckpointKey.of(key))), default=0)
