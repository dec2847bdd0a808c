"""The build of the cluster's image, where nothing has to be built."""

import json
from pathlib import Path

import pytest

from testbed.kube import images


def test_what_a_killed_build_has_left_goes_at_the_next_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    images.layout().folder.mkdir(parents=True)
    built = [{"annotations": {"org.opencontainers.image.ref.name": images.tag()}}]
    (images.layout().folder / "index.json").write_text(json.dumps({"manifests": built}))
    with images._building() as scratch:
        assert scratch.is_relative_to(tmp_path)
    (scratch / "root").mkdir(parents=True)  # SIGKILL leaves no time to remove it
    assert images.build() == images.tag()
    assert not scratch.exists()
