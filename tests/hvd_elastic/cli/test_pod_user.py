"""A pod's user whom the image does not know gets an entry, and nobody else does."""

import pwd
from pathlib import Path

import pytest

from hvd_elastic.cli.pods.pod_user import IMAGE_USER, enter_user
from hvd_elastic.mpijob.contract import USER_FILE

KNOWN = pwd.struct_passwd((IMAGE_USER, "x", 1000, 1000, "", "/home/mpiuser", "/bin/bash"))


@pytest.fixture
def in_the_image(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pwd, "getpwnam", {IMAGE_USER: KNOWN}.__getitem__)
    monkeypatch.setenv("HOME", "/home/mpiuser")


@pytest.mark.usefixtures("in_the_image")
@pytest.mark.parametrize(("uid", "gid"), [(1000680000, 1000), (1000, 2000)])
def test_a_user_of_the_clusters_choice_is_entered_under_the_name_that_ssh_uses(
    tmp_path: Path, uid: int, gid: int
) -> None:
    enter_user(tmp_path, uid, gid)
    assert (tmp_path / USER_FILE).read_text() == f"mpiuser:x:{uid}:{gid}::/home/mpiuser:/bin/bash\n"


@pytest.mark.usefixtures("in_the_image")
def test_the_images_own_user_is_not(tmp_path: Path) -> None:
    enter_user(tmp_path, 1000, 1000)
    assert not list(tmp_path.iterdir())


def test_elsewhere_nobody_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pwd, "getpwnam", {}.__getitem__)
    enter_user(tmp_path, 1000680000, 1000)
    assert not list(tmp_path.iterdir())
