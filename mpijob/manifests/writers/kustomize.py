"""A job's manifests as a kustomize base: one file per object, listed in apply order."""

from collections.abc import Iterable
from pathlib import Path

from hvd_elastic.mpijob.contract import HvdElasticError
from hvd_elastic.mpijob.manifests.manifest_parts import Manifest
from hvd_elastic.mpijob.manifests.writers.yaml_stream import dump
from hvd_elastic.system.atomic_file import replace_file

KUSTOMIZATION = "kustomization.yaml"


class CannotWriteError(HvdElasticError):
    """The kustomize base cannot be written to its folder."""


def files(manifests: Iterable[Manifest]) -> dict[str, str]:
    """The files of the base: name to content."""
    contents = {_file_name(manifest): dump([manifest]) for manifest in manifests}
    base: Manifest = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": list(contents),
    }
    return contents | {KUSTOMIZATION: dump([base])}


def write(manifests: Iterable[Manifest], folder: Path) -> list[Path]:
    """Write the base to `folder`, which is made if it is missing, and return the paths of its files.

    Each file is replaced in one step. Raises CannotWriteError.
    """
    contents = files(manifests)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            replace_file(folder / name, content)
    except OSError as error:
        raise CannotWriteError(f"{error.filename}: {error.strerror}: choose another --output-dir") from error
    return [folder / name for name in contents]


def _file_name(manifest: Manifest) -> str:
    return f"{manifest['kind'].lower()}-{manifest['metadata']['name']}.yaml"
