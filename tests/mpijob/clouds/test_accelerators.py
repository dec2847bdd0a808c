"""What follows from the name of a resource. The names are those that the vendors' device plugins document."""

import pytest

from hvd_elastic.mpijob.clouds.accelerators import Portion, find_accelerator, is_accelerator


@pytest.mark.parametrize(
    ("resource", "portion", "taints", "nvidia", "whole"),
    [
        ("nvidia.com/gpu", Portion.DEVICE, ("nvidia.com/gpu",), True, True),
        ("nvidia.com/mig-1g.5gb", Portion.INSTANCE, ("nvidia.com/gpu", "nvidia.com/mig-1g.5gb"), True, False),
        (
            "nvidia.com/mig-1g.5gb.shared",
            Portion.INSTANCE,
            ("nvidia.com/gpu", "nvidia.com/mig-1g.5gb.shared"),
            True,
            False,
        ),
        ("nvidia.com/gpu.shared", Portion.TURN, ("nvidia.com/gpu", "nvidia.com/gpu.shared"), True, False),
        ("amd.com/gpu", Portion.DEVICE, ("amd.com/gpu",), False, True),
        ("amd.com/cpx_nps4", Portion.DEVICE, ("amd.com/gpu", "amd.com/cpx_nps4"), False, False),
        ("habana.ai/gaudi", Portion.DEVICE, ("habana.ai/gaudi",), False, True),
        ("gpu.intel.com/xe", Portion.DEVICE, ("gpu.intel.com/xe",), False, True),
    ],
)
def test_a_known_resource(resource: str, portion: Portion, taints: tuple[str, ...], nvidia: bool, whole: bool) -> None:
    found = find_accelerator(resource)
    assert (found.resource, found.portion, found.taints) == (resource, portion, taints)
    assert (found.is_nvidia, found.is_whole) == (nvidia, whole)
    assert is_accelerator(resource)


@pytest.mark.parametrize(
    ("label", "value", "portion"),
    [
        ("nvidia.com/gpu.product", "NVIDIA-A100-SXM4-40GB", Portion.DEVICE),
        ("nvidia.com/gpu.product", "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", Portion.INSTANCE),
        ("nvidia.com/gpu.product", "Tesla-T4-SHARED", Portion.TURN),
        ("nvidia.com/gpu.product", "A100-SXM4-40GB-MIG-1g.5gb-SHARED", Portion.INSTANCE),
        ("cloud.google.com/gke-gpu-partition-size", "1g.5gb", Portion.INSTANCE),
        ("cloud.google.com/gke-gpu-sharing-strategy", "time-sharing", Portion.TURN),
    ],
)
def test_nodes_on_which_the_plain_resource_is_a_part_are_told_by_their_labels(
    label: str, value: str, portion: Portion
) -> None:
    found = find_accelerator("nvidia.com/gpu", {label: value})
    assert (found.portion, found.is_whole) == (portion, portion is Portion.DEVICE)
    assert find_accelerator("amd.com/gpu", {label: value}).portion is Portion.DEVICE


def test_any_other_resource_is_a_device_of_its_own() -> None:
    found = find_accelerator("example.com/tpu")
    assert (found.portion, found.taints, found.is_nvidia) == (Portion.DEVICE, ("example.com/tpu",), False)


@pytest.mark.parametrize(
    "resource", ["rdma/hca_shared_devices_a", "vpc.amazonaws.com/efa", "nvidia.com/hostdev", "gpu.intel.com/monitoring"]
)
def test_networks_and_monitors_are_no_accelerators(resource: str) -> None:
    assert not is_accelerator(resource)
