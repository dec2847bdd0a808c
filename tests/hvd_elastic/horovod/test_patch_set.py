"""The patches as files: what their headers promise, and what the documentation says of them."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

from hvd_elastic.horovod import patch_set
from hvd_elastic.horovod.patch_set import FOLDER, Patch, PatchError, apply_patches, read_patches

ROOT = Path(__file__).parents[3]
PATCHES = read_patches()
REPAIRS = [patch for patch in PATCHES if not patch.about_compiling]
NEEDED = [patch for patch in PATCHES if patch.about_compiling]

ONE = Patch.parse("one", "Subject: [PATCH] One\n\nWithout: it\n---\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-once\n+twice\n")


def test_the_files_are_numbered_without_a_gap() -> None:
    numbers = [path.name[:4] for path in sorted(FOLDER.glob("*.patch"))]

    assert numbers == [f"{number:04}" for number in range(1, len(PATCHES) + 1)]


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.name)
def test_a_patch_has_the_form_of_upstreams_commits(patch: Patch) -> None:
    assert len(patch.subject) <= 72
    assert not patch.subject.endswith(".")
    text = next(FOLDER.glob(f"*-{patch.name}.patch")).read_text()
    why, _, _ = text.partition("\nWithout: ")
    assert all(len(line) <= 80 for line in why.splitlines())
    assert re.search(r"^---\n .* \| +\d+ [+-]+$", text, re.MULTILINE), "the files that it changes"


@pytest.mark.parametrize("patch", NEEDED, ids=lambda patch: patch.name)
def test_a_patch_that_names_no_test_says_how_horovod_compiles_without_it(patch: Patch) -> None:
    assert re.fullmatch(
        r"it (does not compile (with GCC|against torch) \d+(\.\d+)? or later|compiles .*)", patch.without
    )
    assert not patch.needs, "an unpatched build has no other patches"
    assert not {needed for other in REPAIRS for needed in other.needs} & {patch.name}


@pytest.mark.parametrize("patch", REPAIRS, ids=lambda patch: patch.name)
def test_the_tests_that_a_patch_names_say_that_they_need_it(patch: Patch) -> None:
    for test in patch.tests:
        path, _, name = test.partition("::")
        tree = ast.parse((ROOT / path).read_text())
        function = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name)
        decorators = " ".join(map(ast.unparse, function.decorator_list))
        assert f"pytest.mark.needs_patch('{patch.name}')" in decorators, test


def test_no_test_needs_a_patch_that_does_not_name_it() -> None:
    found = subprocess.run(
        ["grep", "-rhoE", "--include=*.py", r"needs_patch\(\"[a-z0-9-]+\"", "tests"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(re.findall(r'"([a-z0-9-]+)"', found.stdout)) == {patch.name for patch in REPAIRS}


def test_the_page_lists_what_each_repairs_and_nothing_else() -> None:
    page = (ROOT / "hvd_elastic/horovod/patches/README.md").read_text()
    section = page.partition("## What each repairs")[2].partition("\n#")[0]
    rows = re.findall(r"^\| `([a-z0-9-]+)` \| (.*?) \|$", section, re.MULTILINE)

    assert rows == [(patch.name, patch.without) for patch in REPAIRS]


def test_a_source_that_is_another_is_not_patched(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("never\n")

    with pytest.raises(PatchError, match="the patch one does not fit this source"):
        apply_patches(tmp_path, (ONE,))

    assert [path.name for path in tmp_path.iterdir()] == ["f"]


def test_a_patched_source_says_which_patches_it_has(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("once\n")

    apply_patches(tmp_path, (ONE,))

    assert (tmp_path / "f").read_text() == "twice\n"
    marker: dict[str, object] = {}
    exec((tmp_path / "horovod/common/hvd_elastic_patches.py").read_text(), marker)
    assert marker["NAMES"] == ("one",)


def test_a_patch_must_say_what_is_different_without_it() -> None:
    with pytest.raises(ValueError, match="the patch two has 0 lines `Without:`"):
        Patch.parse("two", "Subject: [PATCH] Two\n\nWhy.\n---\n--- a/f\n")


@pytest.mark.parametrize(
    ("installed", "missing"),
    [
        ((), [patch.name for patch in REPAIRS]),
        (("cxx-standard",), [patch.name for patch in REPAIRS]),
        (tuple(patch.name for patch in PATCHES), []),
        (tuple(patch.name for patch in PATCHES if patch.name != "gloo-message"), ["gloo-message"]),
    ],
)
def test_what_a_horovod_lacks(monkeypatch: pytest.MonkeyPatch, installed: tuple[str, ...], missing: list[str]) -> None:
    monkeypatch.setattr(patch_set, "installed_patches", lambda: installed)

    assert [patch.name for patch in patch_set.missing_patches()] == missing
