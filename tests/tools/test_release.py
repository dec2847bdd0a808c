"""`make release` refuses a version that the changelog does not name. The rest of it is a build: it checks itself."""

import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
BUILDS = 7


def release(folder: Path, changelog: str | None) -> "subprocess.CompletedProcess[str]":
    """Run the script in a checkout of little else, whose `uv` ends with BUILDS."""
    (folder / "tools").mkdir()
    (folder / "venv" / "bin").mkdir(parents=True)
    shutil.copy(ROOT / "tools" / "release.sh", folder / "tools")
    shutil.copy(ROOT / "pyproject.toml", folder)
    uv = folder / "venv" / "bin" / "uv"
    uv.write_text(f"#!/bin/sh\nexit {BUILDS}\n")
    uv.chmod(0o755)
    if changelog is not None:
        (folder / "CHANGELOG.md").write_text(changelog)
    command = ["sh", str(folder / "tools" / "release.sh"), str(folder / "venv")]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    "changelog",
    [
        None,
        "# Changelog\n\n## Unreleased\n",
        f"# Changelog\n\n{VERSION}\n",
        f"## {VERSION}1 - 2026-01-01\n",
        f"## {VERSION.replace('.', 'x')}\n",
    ],
)
def test_a_version_that_the_changelog_does_not_name_is_refused(tmp_path: Path, changelog: str | None) -> None:
    done = release(tmp_path, changelog)
    assert done.returncode == 1
    assert f"CHANGELOG.md has no section for {VERSION}" in done.stderr


@pytest.mark.parametrize("heading", [f"## {VERSION}", f"## {VERSION} - 2026-01-01", f"## [{VERSION}] - 2026-01-01"])
def test_one_that_it_names_is_built(tmp_path: Path, heading: str) -> None:
    done = release(tmp_path, f"# Changelog\n\n## Unreleased\n\n{heading}\n\n- All of it.\n")
    assert done.returncode == BUILDS, done.stderr
