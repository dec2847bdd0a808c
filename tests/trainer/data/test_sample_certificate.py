"""The certificate over any worlds and any kills: it holds where each sample was used once, and only there."""

import json
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.trainer.data import sample_certificate
from hvd_elastic.trainer.data.batch_policy import BatchPolicy
from hvd_elastic.trainer.data.sample_certificate import Certificate, CertifiedPass, SampleHash, examine
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
    assert examine(certificate) == sample_certificate.CertificateFinding(holds=True, words=words)
    if certified.told:
        certificate.by_plan = 64
        assert examine(certificate).words == f"{words} (64 of them in the step in which a worker died)"
        certificate.digest ^= 1
        assert examine(certificate).words == "samples were left out or used more than once"


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
