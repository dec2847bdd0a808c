"""When a version of Kubernetes ends."""

from datetime import date, timedelta
from pathlib import Path

import pytest

from hvd_elastic.mpijob.clouds.cloud import Cloud
from hvd_elastic.mpijob.clouds.kubernetes_versions import DEFAULT, ENDS, current, ended
from testbed.kube.gomodules import VERSIONS


@pytest.mark.parametrize("cloud", ENDS)
def test_a_version_has_its_last_day_and_is_over_on_the_next(cloud: Cloud) -> None:
    for minor, last in ENDS[cloud].items():
        assert ended(f"1.{minor}", cloud, last) is None
        assert ended(f"v1.{minor}.2-eks-1", cloud, last + timedelta(days=1)) == last
        assert f"1.{minor}" in current(cloud, last)
        assert f"1.{minor}" not in current(cloud, last + timedelta(days=1))
    assert list(ENDS[cloud].values()) == sorted(ENDS[cloud].values())


def test_what_is_older_than_all_that_is_known_is_over_and_what_is_newer_is_not() -> None:
    day = date(2026, 11, 28)
    assert ended("v1.29.3", Cloud.ANY, day) == ENDS[Cloud.ANY][33]
    assert ended("v1.40.0", Cloud.ANY, day) is None
    assert ended("no version", Cloud.ANY, day) is None


def test_the_default_is_offered_everywhere_and_run_by_the_tests() -> None:
    assert all(int(DEFAULT.partition(".")[2]) in known for known in ENDS.values())
    assert any(version.startswith(f"{DEFAULT}.") for version in VERSIONS["kubernetes"])


def test_the_page_has_the_table() -> None:
    page = (Path(__file__).parents[3] / "docs" / "cloud-clusters.md").read_text(encoding="utf-8")
    minors = sorted(ENDS[Cloud.ANY])
    for cloud, known in ENDS.items():
        name = "Kubernetes itself" if cloud is Cloud.ANY else cloud.upper()
        assert f"| {' | '.join([name, *(str(known.get(minor, '-')) for minor in minors)])} |" in page
