"""Manifests as a folder for kustomize: one file per object, listed in apply order."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from hvd_elastic.mpijob.contract import HvdElasticError
from hvd_elastic.mpijob.manifests.manifest_parts import Manifest
from hvd_elastic.mpijob.manifests.writers.yaml_stream import dump
from hvd_elastic.system.atomic_file import replace_file

KUSTOMIZATION: Final = "kustomization.yaml"


class CannotWriteError(HvdElasticError):
    """The folder cannot be read or written."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"{error.filename}: {error.strerror}: choose another folder")


def base_files(manifests: Iterable[Manifest]) -> dict[str, str]:
    """The files of a base: name to content."""
    contents = {_file_name(manifest): dump([manifest]) for manifest in manifests}
    return contents | {KUSTOMIZATION: dump([kustomization(list(contents))])}


def kustomization(resources: Sequence[str], *, components: Sequence[str] = (), is_component: bool = False) -> Manifest:
    """Of a base, with the folders of the components that it applies, or of a component.

    `types.Component` of kustomize's `api/types/kustomization.go` gives the version.
    """
    version, kind = ("v1alpha1", "Component") if is_component else ("v1beta1", "Kustomization")
    also = {"components": list(components)} if components else {}
    return {"apiVersion": f"kustomize.config.k8s.io/{version}", "kind": kind, "resources": list(resources), **also}


def write(files: Mapping[str, str], folder: Path) -> list[Path]:
    """Write files (relative path to content) to `folder`, which is made if it is missing, and return their paths.

    Each is replaced in one step, and left alone if it has this content. Raises CannotWriteError.
    """
    try:
        for name, content in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if not (path.is_file() and path.read_bytes() == content.encode()):
                replace_file(path, content)
    except OSError as error:
        raise CannotWriteError(error) from error
    return [folder / name for name in files]


def _file_name(manifest: Manifest) -> str:
    return f"{manifest['kind'].lower()}-{manifest['metadata']['name']}.yaml"
