from pathlib import Path

import pytest
import yaml

from hvd_elastic.mpijob.manifests.render import render
from hvd_elastic.mpijob.manifests.writers import kustomize
from hvd_elastic.mpijob.manifests.writers.yaml_stream import dump
from tests.mpijob.jobs import job


def test_a_kustomize_base_names_each_object_once(tmp_path: Path) -> None:
    manifests = render(job(output={"size": "1Ti", "storage_class": "nfs"}))
    paths = kustomize.write(kustomize.base_files(manifests), tmp_path / "new" / "base")
    assert [path.read_text() for path in paths[:-1]] == [dump([manifest]) for manifest in manifests]
    base = yaml.safe_load(paths[-1].read_text())
    assert base["resources"] == [path.name for path in paths[:-1]]
    assert sorted(path.name for path in paths[0].parent.iterdir()) == sorted(path.name for path in paths)


def test_a_base_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(kustomize.CannotWriteError, match="choose another"):
        kustomize.write(kustomize.base_files(render(job())), tmp_path / "file")
