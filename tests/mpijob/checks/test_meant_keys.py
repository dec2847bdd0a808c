"""What people type who know another tool: the message names the key that means it here."""

import pytest

from tests.mpijob.jobs import refused


@pytest.mark.parametrize(
    ("written", "value", "meant"),
    [
        ("nodeSelector", {"a": "b"}, "node_labels"),
        ("activeDeadlineSeconds", 3, "deadline"),
        ("ttlSecondsAfterFinished", 3, "keep"),
        ("serviceAccountName", "x", "workers.service_account"),
        ("workers.serviceAccountName", "x", "workers.service_account"),
        ("priorityClassName", "y", "priority.workers"),
        ("priority_class", "y", "priority.workers"),
        ("terminationGracePeriodSeconds", 5, "workers.grace"),
        ("backoffLimit", 3, "restarts"),
        ("imagePullSecrets", ["a"], "image_pull_secrets"),
        ("workers.imagePullSecrets", ["a"], "image_pull_secrets"),
        ("schedulerName", "v", "queue"),
        ("replicas", 4, "workers"),
        ("workers.replicas", 4, "workers"),
        ("gpus", 1, "machine.gpus or workers.gpus"),
        ("workers.hugepages", "4Gi", "workers.resources: {hugepages-2Mi: 4Gi}"),
        ("workers.limits", {"cpu": 1}, "workers.cpu, workers.memory, workers.gpus"),
        ("workers.gpu_resourc", "amd.com/gpu", "workers.gpu_resource"),
    ],
)
def test_the_key_that_is_meant(written: str, value: object, meant: str) -> None:
    ((_, message),) = refused(**{written.replace(".", "__"): value}).items()
    assert f"did you mean {meant}" in message


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("pod_annotations", "workers.pod: {metadata: {annotations: ...}}"),
        ("podAnnotations", "workers.pod: {metadata: {annotations: ...}}"),
        ("launcher__annotations", "launcher.pod: {metadata: {annotations: ...}}"),
        ("volumes", "workers.pod: {spec: {volumes: ...}}"),
        ("launcher__affinity", "launcher.pod: {spec: {affinity: ...}}"),
        ("init_containers", "workers.pod: {spec: {initContainers: ...}}"),
        ("runtime_class", "workers.pod: {spec: {runtimeClassName: ...}}"),
        ("security_context", "workers.pod: {spec: {securityContext: ...}}"),
        ("uid", "workers.pod: {spec: {securityContext: {runAsUser: ...}}}"),
        ("overrides", "patches, or workers.pod"),
        ("spread", "workers.pod: {spec: {topologySpreadConstraints: ...}}"),
    ],
)
def test_a_field_of_a_pod(written: str, meant: str) -> None:
    ((_, message),) = refused(**{written: {"a": "b"}}).items()
    assert message.endswith(f"did you mean {meant}?")


@pytest.mark.parametrize(
    ("written", "resource"),
    [
        ("mig-1g.5gb", "nvidia.com/mig-1g.5gb"),
        ("a100-MIG-3g.20gb", "nvidia.com/mig-3g.20gb"),
        ("mi300x", "amd.com/gpu"),
        ("gaudi2", "habana.ai/gaudi"),
    ],
)
def test_an_accelerator_that_is_no_type_of_gpu(written: str, resource: str) -> None:
    ((_, message),) = refused(gpu_type=written, workers__gpus=1).items()
    assert message.endswith(f"did you mean workers.gpu_resource: {resource}?")


def test_what_nobody_means_has_no_guess() -> None:
    ((_, message),) = refused(flux_capacitor=1).items()
    assert message.endswith("see `hvd-elastic schema` for every key")
