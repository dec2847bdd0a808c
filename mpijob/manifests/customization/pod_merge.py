"""A partial pod template merged into a whole one. Pure.

Mappings are merged key by key, and null removes a key. Lists are merged by the key that Kubernetes' OpenAPI names
(`checks/pod_checks.py`), so `kubectl patch` agrees. Two lists are not as there, because a replaced one would lose what
the job needs: tolerations are added, and so are requirements of placement. A node must then meet both sides.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from itertools import product
from typing import Any, Final

from hvd_elastic.mpijob.checks.pod_checks import MERGE_KEYS

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def merged_template(base: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    """`overlay` merged into `base`, both pod templates (`metadata`, `spec`). Neither is changed."""
    return _merged_mapping(base, overlay)


def _merged_mapping(base: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    result = deepcopy(dict(base))
    for key, value in overlay.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merged_field(key, result.get(key), value)
    return result


def _merged_field(key: str, base: Any, overlay: Any) -> Any:
    if key in _ADDED and base:
        return _ADDED[key](base, overlay)
    if isinstance(overlay, Mapping):
        return _merged_mapping(base if isinstance(base, Mapping) else {}, overlay)
    if isinstance(overlay, list) and isinstance(base, list) and key in MERGE_KEYS:
        return _merged_list(MERGE_KEYS[key], base, overlay)
    return deepcopy(overlay)


def _merged_list(key: str, base: Sequence[Any], overlay: Sequence[Any]) -> list[Any]:
    """Items with the same key are merged, the others follow in their order."""
    result = deepcopy(list(base))
    places = {item.get(key): place for place, item in enumerate(result)}
    for item in overlay:
        if (place := places.get(item.get(key))) is None:
            places[item.get(key)] = len(result)
            result.append(deepcopy(item))
        else:
            result[place] = _merged_mapping(result[place], item)
    return result


def _added(base: Sequence[Any], overlay: Sequence[Any]) -> list[Any]:
    return [*base, *(deepcopy(item) for item in overlay if item not in base)]


def _both_affinities(base: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    result = deepcopy(dict(base))
    for kind, rules in overlay.items():
        old = result.get(kind, {})
        both = {**old, **deepcopy(dict(rules))}
        if kind == "nodeAffinity" and _REQUIRED in old and _REQUIRED in rules:
            both[_REQUIRED] = _both_selectors(old[_REQUIRED], rules[_REQUIRED])
        elif _REQUIRED in old and _REQUIRED in rules:
            both[_REQUIRED] = _added(old[_REQUIRED], rules[_REQUIRED])
        if _PREFERRED in old and _PREFERRED in rules:
            both[_PREFERRED] = _added(old[_PREFERRED], rules[_PREFERRED])
        result[kind] = both
    return result


def _both_selectors(base: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    """A node matches a selector if it matches one of its terms, so each of one is joined with each of the other."""
    pairs = product(base.get("nodeSelectorTerms", ()), overlay.get("nodeSelectorTerms", ()))
    return {"nodeSelectorTerms": [_both_terms(one, other) for one, other in pairs]}


def _both_terms(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    keys = [key for key in ("matchExpressions", "matchFields") if key in one or key in other]
    return {key: _added(one.get(key, ()), other.get(key, ())) for key in keys}


_ADDED: Final[Mapping[str, Callable[[Any, Any], Any]]] = {"tolerations": _added, "affinity": _both_affinities}
