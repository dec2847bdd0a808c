"""A job's manifests as a kustomize base: one file an object, in apply order."""

import os
from collections.abc import Iterable
from pathlib import Path

from hvd_elastic.mpijob.contract import HvdElasticError
from hvd_elastic.mpijob.manifests.manifest import Manifest
from hvd_elastic.mpijob.manifests.output.yaml_stream import dump

KUSTOMIZATION = "kustomization.yaml"


class CannotWriteError(HvdElasticError):
    """The folder cannot be written to."""


def files(manifests: Iterable[Manifest]) -> dict[str, str]:
    """File name to content."""
    written = {_file_name(manifest): dump([manifest]) for manifest in manifests}
    base: Manifest = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": list(written),
    }
    return written | {KUSTOMIZATION: dump([base])}


def write(manifests: Iterable[Manifest], folder: Path) -> list[Path]:
    """Write the base and return its files. Each file is replaced whole. Raises CannotWriteError."""
    contents = files(manifests)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            _replace(folder / name, content)
    except OSError as error:
        raise CannotWriteError(f"{error.filename}: {error.strerror}: choose another --output-dir") from error
    return [folder / name for name in contents]


def _file_name(manifest: Manifest) -> str:
    return f"{manifest['kind'].lower()}-{manifest['metadata']['name']}.yaml"


def _replace(path: Path, content: str) -> None:
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(content, encoding="utf-8")
    os.replace(temporary, path)  # noqa: PTH105 - the same, and says what it does
