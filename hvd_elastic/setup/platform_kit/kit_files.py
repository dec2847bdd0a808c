"""The kit as files: a kustomize base with a file for each part, and components for what some clusters cannot use.

A component is applied where a kustomization names it under `components`
(https://kubectl.docs.kubernetes.io/guides/config_management/components/).
"""

from collections.abc import Collection, Sequence
from pathlib import PurePosixPath
from typing import Final

from hvd_elastic.mpijob.manifests.manifest_parts import Manifest
from hvd_elastic.mpijob.manifests.writers.kustomize import KUSTOMIZATION, kustomization
from hvd_elastic.mpijob.manifests.writers.yaml_stream import dump
from hvd_elastic.setup.platform_kit.kit_parts import KitPart

MARK: Final = "# Written by `hvd-elastic platform-kit`"
"""How each file begins: by it the kit knows what it may replace and remove. It stays the same over all releases."""

_COMPONENTS: Final = PurePosixPath("components")


def kit_files(parts: Sequence[KitPart], *, switched_on: Collection[str] = ()) -> dict[str, str]:
    """Relative path to content. `switched_on`: names of components that the base itself applies."""
    base = [part for part in parts if not part.is_component]
    components = [part for part in parts if part.is_component]
    named = [str(_COMPONENTS / part.name) for part in components if part.name in switched_on]
    files = {file_of(part): _text(part.manifests) for part in base}
    for part in components:
        path = PurePosixPath(file_of(part))
        files[str(path)] = _text(part.manifests)
        files[str(path.with_name(KUSTOMIZATION))] = _text([kustomization([path.name], is_component=True)])
    files[KUSTOMIZATION] = _text([kustomization([file_of(part) for part in base], components=named)])
    return files


def file_of(part: KitPart) -> str:
    """The file with a part's manifests: the parts of the base beside each other, each component in its own folder."""
    name = f"{part.name}.yaml"
    return str(_COMPONENTS / part.name / name) if part.is_component else name


def _text(documents: Sequence[Manifest]) -> str:
    return f"{MARK}, which replaces it: change it in an overlay.\n{dump(documents)}"
