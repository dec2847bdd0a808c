from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.priorityclasses import DEFAULTS, HIGHEST_VALUE, PreemptionPolicy, PriorityClass, Tier, check, manifest
from tests.mpijob import admission


def changed(tier: Tier, **fields: object) -> list[PriorityClass]:
    return [replace(one, **fields) if one.tier is tier else one for one in DEFAULTS]  # type: ignore[arg-type]


def test_the_defaults() -> None:
    assert [(one.name, one.value, str(one.preemption_policy)) for one in DEFAULTS] == [
        ("inference-pc", 100_000_000, "PreemptLowerPriority"),
        ("floor-pc", 100_000_000, "Never"),
        ("preserved-pc", 90_000_000, "Never"),
        ("preemptible-pc", 80_000_001, "Never"),
    ]
    assert check(DEFAULTS) == []


@pytest.mark.parametrize("one", DEFAULTS, ids=lambda one: one.name)
def test_they_are_admitted(one: PriorityClass) -> None:
    assert admission.errors(manifest(one)) == []
    assert "globalDefault" not in manifest(one)
    assert manifest(replace(one, global_default=True))["globalDefault"] is True


@pytest.mark.parametrize(
    ("classes", "path"),
    [
        (changed(Tier.INFERENCE, value=HIGHEST_VALUE + 1), "classes[0].value"),
        (changed(Tier.PREEMPTIBLE, value=-11), "classes[3].value"),
        (changed(Tier.FLOOR, value=99_999_999), "classes[1].value"),
        (changed(Tier.FLOOR, value=100_000_001), "classes[1].value"),
        (
            changed(Tier.FLOOR, preemption_policy=PreemptionPolicy.PREEMPT_LOWER_PRIORITY),
            "classes[1].preemption_policy",
        ),
        (changed(Tier.INFERENCE, value=90_000_000), "classes[1].value"),
        (changed(Tier.PRESERVED, value=100_000_000), "classes[1].value"),
        (changed(Tier.PRESERVED, value=80_000_001), "classes[2].value"),
        (changed(Tier.INFERENCE, name="system-inference"), "classes[0].name"),
        (changed(Tier.INFERENCE, name="Inference"), "classes[0].name"),
        (changed(Tier.INFERENCE, name="preserved-pc"), "classes[2].name"),
        (
            changed(Tier.PRESERVED, preemption_policy=PreemptionPolicy.PREEMPT_LOWER_PRIORITY),
            "classes[2].preemption_policy",
        ),
        (changed(Tier.INFERENCE, preemption_policy=PreemptionPolicy.NEVER), "classes[0].preemption_policy"),
        ([replace(one, global_default=True) for one in DEFAULTS[:2]], "classes[1].global_default"),
    ],
)
def test_what_is_wrong(classes: list[PriorityClass], path: str) -> None:
    assert path in {problem.path for problem in check(classes)}


def test_every_problem_at_once() -> None:
    classes = [replace(one, name="system-x", value=-100, global_default=True) for one in DEFAULTS]
    paths = [problem.path for problem in check(classes)]
    assert len(paths) == 4 + 4 + 3 + 3 + 2


def test_the_cutoff_of_the_autoscaler_is_the_clusters_own() -> None:
    low = changed(Tier.PREEMPTIBLE, value=-50)
    assert check(low, cutoff=-100) == []
    assert [problem.path for problem in check(low)] == ["classes[3].value"]
    assert [problem.path for problem in check(DEFAULTS, cutoff=85_000_000)] == ["classes[3].value"]


@given(st.tuples(*[st.integers(-(2**31), HIGHEST_VALUE)] * 3), st.integers(-1, 1), st.permutations(range(4)))
def test_only_the_right_order_passes_however_they_are_listed(
    values: tuple[int, int, int], beside: int, order: list[int]
) -> None:
    inference, *others = values
    given_ = (inference, inference + beside, *others)
    classes = [replace(one, value=value) for one, value in zip(DEFAULTS, given_, strict=True)]
    right = beside == 0 and values[0] > values[1] > values[2] >= -10
    assert (check([classes[index] for index in order]) == []) == right
