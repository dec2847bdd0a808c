"""Whether Kueue evicts jobs that lack pods, by the rules of its configuration's two versions."""

import pytest

from hvd_elastic.client.doctor.checks.kueue_configuration import PodsReadyWait, kueue_configuration

OLD = "apiVersion: config.kueue.x-k8s.io/v1beta1\nkind: Configuration\n"
NEW = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"


def wait(text: str, release: tuple[int, int] | None, *arguments: str) -> PodsReadyWait | None:
    return kueue_configuration(text, release=release, arguments=arguments).pods_ready_wait


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("", None),
        ("", (0, 18)),
        (OLD, (0, 10)),
        (OLD, (0, 19)),
        (OLD + "waitForPodsReady: {timeout: 5m}", (0, 10)),
        (OLD + "waitForPodsReady: {enable: false}", (0, 19)),
        (NEW, (0, 18)),
        (NEW, None),
        (NEW + "featureGates: {DisableWaitForPodsReady: true}", (0, 19)),
        (NEW + "waitForPodsReady: {timeout: 5m}\nfeatureGates: {DisableWaitForPodsReady: true}", (0, 20)),
        ("{not yaml", (0, 18)),
        ("- a\n- list", (0, 18)),
    ],
)
def test_it_does_not_wait(text: str, release: tuple[int, int] | None) -> None:
    assert wait(text, release) is None


@pytest.mark.parametrize(
    ("text", "release", "timeout", "blocks_others", "is_default"),
    [
        (OLD + "waitForPodsReady: {enable: true}", (0, 10), "5m", True, False),
        (OLD + "waitForPodsReady: {enable: true, timeout: 10m, blockAdmission: false}", None, "10m", False, False),
        (NEW + "waitForPodsReady: {timeout: 5m}", (0, 15), "5m", False, False),
        (NEW + "waitForPodsReady: {timeout: 5m, blockAdmission: true}", (0, 15), "5m", True, False),
        (NEW, (0, 19), "30m", False, True),
        (NEW, (1, 0), "30m", False, True),
        (NEW + "featureGates: {DisableWaitForPodsReady: false}", (0, 19), "30m", False, True),
    ],
)
def test_it_waits(
    text: str, release: tuple[int, int] | None, timeout: str, blocks_others: bool, is_default: bool
) -> None:
    assert wait(text, release) == PodsReadyWait(timeout=timeout, blocks_others=blocks_others, is_default=is_default)


@pytest.mark.parametrize("separator", ["=", " "])
def test_the_gate_may_be_an_argument(separator: str) -> None:
    gates = f"--feature-gates{separator}PartialAdmission=true,DisableWaitForPodsReady=true".split(" ")
    assert wait(NEW, (0, 19), "--config=/c.yaml", *gates) is None
    assert wait(NEW, (0, 19), "--feature-gates=DisableWaitForPodsReady=false") is not None


def test_whether_it_takes_every_job() -> None:
    assert kueue_configuration(OLD + "manageJobsWithoutQueueName: true").manages_all_jobs
    assert not kueue_configuration(OLD + "#manageJobsWithoutQueueName: true").manages_all_jobs
