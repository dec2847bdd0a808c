"""Which Horovod an image's name tells, and since when it takes which option."""

import pytest

from hvd_elastic.horovod import patch_set
from hvd_elastic.mpijob.lint.job.horovod_version import (
    BUNDLED,
    SINCE,
    WORKER_ADDRESSES,
    HorovodVersion,
    horovod_version,
    of_image,
)
from hvd_elastic.mpijob.lint.job.launcher_command_line import OPTIONS
from hvd_elastic.mpijob.problems import InvalidInputError


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("horovod/horovod:0.20.0-tf2.3.0-torch1.6.0-mxnet1.6.0.post0-py3.7-cuda10.1", HorovodVersion(0, 20, 0)),
        ("registry.example.com:5000/horovod/horovod:v0.28.1", HorovodVersion(0, 28, 1)),
        ("example.com/train:cuda11-horovod0.24.2", HorovodVersion(0, 24, 2)),
        ("example.com/horovod-0.23:nightly", HorovodVersion(0, 23, 0)),
        ("example.com/train:1.4-horovod0.28.1-hvdelastic.2", HorovodVersion(0, 28, 1, 2)),
        ("example.com/train:horovod0.28.1-hvdelastic.1-cuda13", HorovodVersion(0, 28, 1, 1)),
        ("example.com/hvd-elastic:2.0", BUNDLED),
        ("example.com/train:0.20.3", None),
        ("example.com:5000/horovod", None),
        ("horovod/horovod@sha256:0202", None),
        ("horovod/horovod:latest", None),
        ("", None),
        (None, None),
    ],
)
def test_only_a_name_that_says_whose_number_it_is_tells_a_version(image: str | None, expected: object) -> None:
    assert of_image(image) == expected


def test_a_stated_version_is_a_release() -> None:
    assert horovod_version("0.24") == HorovodVersion(0, 24, 0)
    assert horovod_version("0.28.1+hvdelastic.12") == HorovodVersion(0, 28, 1, 12)
    with pytest.raises(InvalidInputError, match=r"is not a version: write a release"):
        horovod_version("latest")


def test_every_option_with_a_date_is_an_option() -> None:
    assert set(SINCE) <= set(OPTIONS)


@pytest.mark.parametrize("text", ["0.28.1", "0.28.1+hvdelastic.1", "0.28.1+hvdelastic.2"])
def test_a_version_is_written_as_it_is_read(text: str) -> None:
    assert str(horovod_version(text)) == text


def test_the_sets_of_patches_since_the_second_unpickle_nothing() -> None:
    assert HorovodVersion(0, 28, 1).unpickles_requests
    assert HorovodVersion(0, 28, 1, 1).unpickles_requests
    assert not BUNDLED.unpickles_requests
    assert patch_set.NUMBER >= WORKER_ADDRESSES
    assert "worker-addresses" in {patch.name for patch in patch_set.read_patches()}
