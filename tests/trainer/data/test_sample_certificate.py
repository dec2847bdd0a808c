"""The certificate over any worlds and any kills: it holds where each sample was used once, and only there."""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.trainer.data import certified_pass
from hvd_elastic.trainer.data.batch_policy import BatchPolicy
from hvd_elastic.trainer.data.certified_pass import KEPT_ROWS, CertifiedPass, SampleHash
from hvd_elastic.trainer.data.sample_certificate import Certificate, CertificateFinding, examine
from hvd_elastic.trainer.data.sample_proof import SampleProof
from hvd_elastic.trainer.data.sampler import EpochPlan, SampleOrder


@dataclass(frozen=True)
class World:
    """A world of `size` workers that takes `steps` steps and then loses a worker."""

    size: int
    steps: int
    died: str
    """`before` the commit of one more step, or `told`: after the commit and before its agreement."""


WORLDS = st.lists(
    st.builds(World, size=st.integers(1, 5), steps=st.integers(0, 5), died=st.sampled_from(["before", "told"])),
    max_size=8,
)


def train(
    length: int, total: int, worlds: list[World], *, epochs: int, shuffle: bool
) -> tuple[Certificate, Counter[int]]:
    """Play the epochs. Returns the certificate, and how often each sample of an epoch is in the committed state."""
    certificate, used = Certificate(), Counter[int]()
    coming = iter(worlds)
    for epoch in range(epochs):
        order = SampleOrder(length, epoch=epoch, shuffle=shuffle)
        under_way = CertifiedPass(name="train", first=epoch, last=epoch, length=length, seed=0, shuffle=shuffle)
        certificate.passes.append(under_way)
        position = 0
        while position < length:
            world = next(coming, World(size=2, steps=10**6, died="before"))
            for step in range(world.steps + 1):
                if position == length:
                    break
                shares = step_of(length, position, total, world.size, order)
                if step == world.steps and world.died == "before":
                    break  # the step is lost, with what its workers have counted
                used.update((epoch, sample) for share in shares for sample in share)  # type: ignore[misc]
                position = under_way.position = position + sum(map(len, shares))
                if step == world.steps:
                    break  # the commit stays, and what the workers would have told is lost
                hashed = SampleHash(name="train", epoch=epoch)
                certificate.add(sum(hashed.sum_of(share) for share in shares))
                under_way.told = position
            document = json.loads(json.dumps(certificate.state_dict()))
            certificate = Certificate.from_state_dict(document)  # the next world has it from the commit
            certificate.complete()
            under_way = next(each for each in certificate.passes if each.last == epoch)
        certificate.put_together(epoch + 1)
    return certificate, used


def step_of(length: int, position: int, total: int, size: int, order: SampleOrder) -> list[list[int]]:
    """What each worker takes in the next step, without padding."""
    shares = []
    for rank in range(size):
        policy = BatchPolicy(global_size=total)
        plan = EpochPlan(length=length, position=position, policy=policy, rank=rank, size=size)
        indices, micro_batch = next(zip(plan.indices(order), plan.micro_batches(), strict=False))
        shares.append(indices if micro_batch.weight else [])
    return shares


@given(
    length=st.integers(1, 40), total=st.integers(1, 9), worlds=WORLDS, epochs=st.integers(1, 4), shuffle=st.booleans()
)
def test_it_holds_over_any_worlds_and_kills(
    length: int, total: int, worlds: list[World], epochs: int, shuffle: bool
) -> None:
    certificate, used = train(length, total, worlds, epochs=epochs, shuffle=shuffle)
    assert set(used.values()) == {1}
    assert len(used) == length * epochs
    (whole,) = certificate.passes
    assert (whole.first, whole.last, whole.is_whole) == (0, epochs - 1, True)
    finding = examine(certificate)
    assert finding.holds
    assert finding.words.startswith(f"train, epoch{'' if epochs == 1 else 's'} 0")
    undisturbed, _ = train(length, total, [], epochs=epochs, shuffle=shuffle)
    assert undisturbed.digest == certificate.digest
    assert undisturbed.by_plan == 0
    assert certificate.by_plan <= sum(total for world in worlds if world.died == "told")


@given(st.lists(st.integers(0, 50), max_size=60), st.integers(0, 3), st.sampled_from(["train", "other"]))
def test_it_holds_only_where_each_sample_was_used_once(samples: list[int], epoch: int, name: str) -> None:
    digest = SampleHash(name=name, epoch=epoch).sum_of(samples)
    whole = CertifiedPass(name="train", first=1, last=1, length=51, seed=0, shuffle=True, position=51, told=51)
    is_right = (sorted(samples), epoch, name) == (list(range(51)), 1, "train")
    assert examine(Certificate(digest=digest, passes=[whole])).holds is is_right
    right = SampleHash(name="train", epoch=1).sum_of(np.random.default_rng(0).permutation(51))
    assert examine(Certificate(digest=right, passes=[whole])).holds
    assert not examine(Certificate(digest=right, passes=[whole, whole])).holds


@pytest.mark.parametrize(
    ("one", "words"),
    [
        pytest.param(
            {"position": 384, "told": 384}, "train, epoch 3: 384 of 1,437 samples once so far", id="under way"
        ),
        pytest.param(
            {"position": 1408, "told": 1408, "first": 0, "last": 2},
            "train, epochs 0-2: 1,408 of 1,437 samples once, and no other",
            id="drop_last",
        ),
        pytest.param({"position": 1437, "told": 1437}, "train, epoch 3: each of 1,437 samples once", id="whole"),
        pytest.param(
            {"length": None, "shuffle": None, "position": 20, "told": 20},
            "train, epoch 3: 20 samples once so far",
            id="a stream",
        ),
        pytest.param({}, "no samples yet", id="nothing"),
    ],
)
def test_what_is_said(one: dict[str, object], words: str) -> None:
    fields = {"name": "train", "first": 3, "last": 3, "length": 1437, "seed": 7, "shuffle": True, **one}
    certified = CertifiedPass(**fields)  # type: ignore[arg-type]
    later = CertifiedPass(name="train", first=3, last=3, length=1437, seed=7, shuffle=True)
    passes = [certified, later] if certified.last < 3 else [certified]
    certificate = Certificate(digest=certified.sum_of(0, certified.told), passes=passes)
    assert examine(certificate) == CertificateFinding(holds=True, words=words)
    if certified.told:
        certificate.by_plan = 64
        assert examine(certificate).words == f"{words} (64 of them in the step in which a worker died)"
        certificate.digest ^= 1
        assert examine(certificate).words == "samples were left out or used more than once"


def ended(epoch: int, told: int, *, name: str = "train", seed: int = 0) -> CertifiedPass:
    return CertifiedPass(
        name=name, first=epoch, last=epoch, length=51, seed=seed, shuffle=True, position=told, told=told
    )


def played(epochs: Iterable[list[CertifiedPass]]) -> Certificate:
    """What a job has at the beginning of the epoch after these, whose certificate goes through a commit at each."""
    certificate = Certificate()
    for epoch, passes in enumerate(epochs):
        for each in passes:
            certificate.passes.append(each)
            certificate.add(each.sum_of(0, each.told))
        certificate.put_together(epoch + 1)
        certificate = Certificate.from_state_dict(json.loads(json.dumps(certificate.state_dict())))
    return certificate


SIXTY_DAYS = range(8640)
"""With an epoch each ten minutes."""


@pytest.mark.thorough
@pytest.mark.parametrize(
    "passes",
    [
        pytest.param(lambda epoch: [ended(epoch, 40 + epoch % 3)], id="as many workers as there were"),
        pytest.param(lambda epoch: [ended(epoch, 48, seed=epoch)], id="a seed for each epoch"),
        pytest.param(
            lambda epoch: [ended(epoch, 51), *([ended(epoch, 51, name="test")] if epoch % 5 == 4 else [])],
            id="an evaluation at times",
        ),
        pytest.param(lambda epoch: [ended(epoch, 51, name=f"part {epoch}")], id="a name for each epoch"),
    ],
)
def test_sixty_days_take_the_room_of_a_few_epochs(passes: Callable[[int], list[CertifiedPass]]) -> None:
    certificate = played(map(passes, SIXTY_DAYS))
    assert len(certificate.passes) <= KEPT_ROWS
    assert len(certificate.folded) <= KEPT_ROWS
    assert len(json.dumps(certificate.state_dict())) < 2000
    certificate.forget()
    finding = examine(certificate)
    assert finding.holds
    latest = max(each.last for each in certificate.passes)
    assert f"{latest}: " in finding.words[:300]
    certificate.add(1)
    assert not examine(certificate).holds, "a fault of long ago is there for good"


def test_what_all_workers_tell_is_put_into_the_rows_that_are_written() -> None:
    certificate = played([ended(epoch, 40 + epoch % 3)] for epoch in range(40))
    under_way = ended(40, 0)
    under_way.length, under_way.position = None, 8
    certificate.passes.append(under_way)
    written = certificate.state_dict()
    before = [*written["passes"]]
    under_way.length, under_way.told = 51, 8
    certificate.add(under_way.sum_of(0, 8))
    assert written != certificate.state_dict()
    certificate.tell(written)
    assert written == certificate.state_dict()
    assert all(row is same for row, same in zip(before, written["passes"], strict=True)), "a row was written again"


def test_an_epoch_that_is_done_twice_is_found_after_it_was_folded() -> None:
    certificate = played([ended(epoch, 40 + epoch % 3)] for epoch in range(40))
    again = ended(7, 51)
    certificate.passes.append(again)
    certificate.add(again.sum_of(0, 51))
    assert "more than one pass over train of epoch" in examine(certificate).words


def test_whole_epochs_of_any_seeds_are_one_row_that_is_proved_from_the_length() -> None:
    certificate = played([ended(epoch, 51, seed=epoch)] for epoch in range(100))
    assert (len(certificate.passes), certificate.folded) == (1, [])
    assert examine(certificate).words == "train, epochs 0-99: each of 51 samples once"


def test_only_new_epochs_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[int] = []
    sum_of = certified_pass._sum_of_epoch.__wrapped__

    def note(name: str, epoch: int, *rest: Any) -> int:
        looked_at.append(epoch)
        return sum_of(name, epoch, *rest)

    monkeypatch.setattr(certified_pass, "_sum_of_epoch", note)
    certificate = played([ended(epoch, 51)] for epoch in range(50))
    later, proof = ended(50, 51), SampleProof()
    certificate.passes.append(later)
    certificate.add(later.sum_of(0, 51))
    for epochs in (range(51), [50]):
        looked_at.clear()
        proof.begin(certificate)
        proof.wait()
        assert sorted(set(looked_at)) == list(epochs)
        assert proof.words == "train, epochs 0-50: each of 51 samples once"
    proof.begin(certificate)
    looked_at.clear()
    committed = Certificate.from_state_dict(certificate.state_dict())
    assert examine(committed).holds
    assert set(looked_at) == {50}, "whoever becomes rank 0 has it from the commit"
    committed.forget()
    looked_at.clear()
    assert examine(committed).holds
    assert set(looked_at) == set(range(51)), "`verify` takes nobody's word"


def test_the_certificate_of_an_older_version_is_read_and_gets_smaller() -> None:
    passes = [ended(epoch, 40 + epoch % 3) for epoch in range(300)]
    rows = [["train", each.first, each.last, 51, 0, True, each.told, each.told] for each in passes]
    digest = sum(each.sum_of(0, each.told) for each in passes) % 2**64
    certificate = Certificate.from_state_dict({"digest": digest, "by_plan": 0, "passes": rows})
    assert examine(certificate).holds
    for epoch in range(300, 320):
        certificate.put_together(epoch)
    assert len(certificate.passes) == KEPT_ROWS
    assert examine(certificate).holds


def test_the_hash_stays_the_same_between_versions() -> None:
    """A job that goes on with a newer version must find what an older one has counted."""
    assert SampleHash(name="train", epoch=3).sum_of(range(1000)) == PINNED


PINNED = 10489247986277932785


def test_hashes_look_random() -> None:
    """Sums over one sample, two samples and neighbours collide no more often than random numbers do."""
    hashed = SampleHash(name="train", epoch=0)
    singles = [hashed.sum_of([each]) for each in range(2000)]
    pairs = [(one + other) % 2**64 for number, one in enumerate(singles[:300]) for other in singles[number + 1 : 300]]
    assert len({*singles, *pairs}) == len(singles) + len(pairs)
    bits = np.array([[value >> bit & 1 for bit in range(64)] for value in singles])
    assert np.all(np.abs(bits.mean(axis=0) - 0.5) < 6 * 0.5 / len(singles) ** 0.5)
