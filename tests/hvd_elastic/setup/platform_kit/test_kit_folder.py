"""The folder of a kit holds what the options say, and nobody else's file is touched."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.mpijob.manifests.writers.kustomize import CannotWriteError
from hvd_elastic.mpijob.problems import InvalidInputError
from hvd_elastic.setup.platform_kit.kit_files import MARK
from hvd_elastic.setup.platform_kit.kit_folder import write_kit


def kit(*names: str, text: str = "") -> dict[str, str]:
    return {name: f"{MARK}\n{text}{name}\n" for name in names}


def found(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


NAMES = st.sets(st.sampled_from(["a.yaml", "b.yaml", "components/c/c.yaml", "components/d/d.yaml"]), min_size=1)


@given(before=NAMES, after=NAMES)
def test_the_last_kit_is_all_that_the_folder_holds(
    tmp_path_factory: pytest.TempPathFactory, before: set[str], after: set[str]
) -> None:
    folder = tmp_path_factory.mktemp("kit") / "new" / "kit"
    write_kit(kit(*before, text="old "), folder)
    paths = write_kit(kit(*after), folder)
    assert found(folder) == kit(*after)
    assert {str(path.relative_to(folder)) for path in paths} == after


def test_the_same_again_touches_no_file(tmp_path: Path) -> None:
    write_kit(kit("a.yaml"), tmp_path)
    before = (tmp_path / "a.yaml").stat()
    write_kit(kit("a.yaml"), tmp_path)
    assert (tmp_path / "a.yaml").stat().st_ino == before.st_ino


@pytest.mark.parametrize("name", ["README.md", "components/mine/kustomization.yaml", "a.yaml", ".git/HEAD"])
def test_a_folder_with_files_of_others_is_refused_untouched(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("mine")
    with pytest.raises(InvalidInputError, match=f"did not write: {name}") as caught:
        write_kit(kit("a.yaml"), tmp_path)
    assert caught.value.exit_code == 2
    assert found(tmp_path) == {name: "mine"}


def test_a_link_is_somebody_elses(tmp_path: Path) -> None:
    write_kit(kit("a.yaml"), tmp_path / "elsewhere")
    (tmp_path / "kit").mkdir()
    (tmp_path / "kit" / "a.yaml").symlink_to(tmp_path / "elsewhere" / "a.yaml")
    (tmp_path / "kit" / "components").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidInputError, match=r"a\.yaml, components"):
        write_kit(kit("a.yaml"), tmp_path / "kit")


def test_a_home_directory_is_not_listed_whole(tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / f"{number:02}").touch()
    with pytest.raises(InvalidInputError, match="08, 09, and others"):
        write_kit(kit("a.yaml"), tmp_path)


def test_what_the_file_system_refuses(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CannotWriteError, match="choose another folder"):
        write_kit(kit("a.yaml"), tmp_path / "file")
