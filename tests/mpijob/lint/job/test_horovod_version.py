"""Which Horovod an image's name tells, and since when it takes which option."""

import pytest

from hvd_elastic.mpijob.lint.job.horovod_version import BUNDLED, SINCE, HorovodVersion, horovod_version, of_image
from hvd_elastic.mpijob.lint.job.launcher_command_line import OPTIONS
from hvd_elastic.mpijob.problems import InvalidInputError


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("horovod/horovod:0.20.0-tf2.3.0-torch1.6.0-mxnet1.6.0.post0-py3.7-cuda10.1", (0, 20, 0)),
        ("registry.example.com:5000/horovod/horovod:v0.28.1", (0, 28, 1)),
        ("example.com/train:cuda11-horovod0.24.2", (0, 24, 2)),
        ("example.com/horovod-0.23:nightly", (0, 23, 0)),
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
    with pytest.raises(InvalidInputError, match=r"is not a version: write a release"):
        horovod_version("latest")


def test_every_option_with_a_date_is_an_option() -> None:
    assert set(SINCE) <= set(OPTIONS)
