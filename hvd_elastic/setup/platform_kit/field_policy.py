"""A ValidatingAdmissionPolicy that lets an account change some fields of an object, and no others: RBAC knows none."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from hvd_elastic.priorityclasses.admission_policy import AdmissionPolicy, cel_list, cel_text

Fields = Mapping[str, "Fields"]
"""Keys of an object that may change, each with those below it; nothing below: all of it may."""

_SERVERS_OWN: Final[Fields] = {"generation": {}, "managedFields": {}, "resourceVersion": {}}
"""What the API server changes with every write."""


def field_policy(
    *, name: str, resource: tuple[str, str], condition: tuple[str, str], may_change: Fields, refusal: str
) -> AdmissionPolicy:
    """The policy.

    Args:
        name: its own.
        resource: its group and its plural.
        condition: name and CEL expression of the requests that are looked at.
        may_change: from the whole object on. Its metadata also has what the API server writes.
        refusal: what follows the account's name in the answer to any other change.
    """
    metadata: Fields = {**_SERVERS_OWN, **may_change.get("metadata", {})}
    maps = [*_maps("object", "", {**may_change, "metadata": metadata})]
    return AdmissionPolicy(
        name=name,
        group=resource[0],
        versions=["*"],
        resource=resource[1],
        operation="UPDATE",
        condition=condition,
        variables={name: text for one in maps for name, text in one.variables().items()},
        allowed=[condition for one in maps for condition in one.conditions()],
        refusal=f"request.userInfo.username + {cel_text(refusal)}",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Map:
    """A map in an object of which some keys may change, or be added or removed. One that is missing is as an empty one.

    Untyped (`dyn`), because the keys of what has a type cannot be enumerated.
    """

    name: str
    path: str
    """In CEL, from the object on: `.?spec.?runPolicy`."""
    free: tuple[str, ...]

    def variables(self) -> dict[str, str]:
        """The map as it is to be, and as it is."""
        or_empty = ".orValue({})" if self.path else ""
        return {
            self.name: f"dyn(object){self.path}{or_empty}",
            f"{self.name}Before": f"dyn(oldObject){self.path}{or_empty}",
        }

    def conditions(self) -> Iterator[str]:
        """Every other key is there as it was, and none is gone."""
        new, old = (f"variables.{name}" for name in self.variables())
        free = f"key in {cel_list(self.free)}"
        yield f"{new}.all(key, {free} || key in {old} && {new}[key] == {old}[key])"
        yield f"{old}.all(key, {free} || key in {new})"


def _maps(name: str, path: str, fields: Fields) -> Iterator[_Map]:
    yield _Map(name=name, path=path, free=tuple(sorted(fields)))
    for key, below in fields.items():
        if below:
            # Variables are of one policy: a pod template has metadata as well.
            yield from _maps(f"{name}_{key}", f"{path}.?{key}", below)
