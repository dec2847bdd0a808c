"""A change of a rendered object, in kustomize's form."""

from typing import Any

from hvd_elastic.mpijob.description.scalar_types import ObjectName, Text
from hvd_elastic.mpijob.description.section import Section


class PatchTarget(Section):
    """The objects that a patch changes: all of a kind, or one of them."""

    kind: Text
    """Kind of the objects, such as `MPIJob`, `NetworkPolicy` or `Role`."""
    name: ObjectName | None = None
    """Name of the object. All of the kind by default."""


class PatchSpec(Section):
    """A JSON patch (RFC 6902), if it is a list, or else a JSON merge patch (RFC 7396)."""

    target: PatchTarget
    """What is changed."""
    patch: Text | dict[str, Any] | list[Any]
    """The patch, as YAML or as text that holds YAML. In a merge patch null removes a field, and a list is replaced."""
