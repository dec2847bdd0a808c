"""What else is in the stream: objects that make a job's hazard better or worse."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from hvd_elastic.mpijob.lint.document.view import View


@dataclass(frozen=True, slots=True, kw_only=True)
class Companions:
    """The other objects of the stream, by kind and by kind and name: a stream may hold a thousand jobs."""

    by_kind: Mapping[str, tuple[View, ...]]
    by_name: Mapping[tuple[str, str], tuple[View, ...]]

    def of(self, *kinds: str, namespace: str | None = None) -> Iterator[View]:
        """Objects of these kinds; with `namespace`, only those that are in it."""
        for kind in kinds:
            yield from _within(self.by_kind.get(kind, ()), namespace)

    def named(self, kind: str, name: str | None, namespace: str | None = None) -> View:
        """The object of that kind and name; an empty view where the stream does not hold it."""
        found = _within(self.by_name.get((kind, name), ()), namespace) if name else iter(())
        return next(found, View(None))


def _within(views: tuple[View, ...], namespace: str | None) -> Iterator[View]:
    for view in views:
        if namespace is None or (view.get("metadata", "namespace").text or "default") == namespace:
            yield view


def companions(views: Iterable[View]) -> Companions:
    """The objects, indexed."""
    by_kind: dict[str, list[View]] = {}
    by_name: dict[tuple[str, str], list[View]] = {}
    for view in views:
        kind, name = view.get("kind").text or "", view.get("metadata", "name").text or ""
        by_kind.setdefault(kind, []).append(view)
        by_name.setdefault((kind, name), []).append(view)
    return Companions(
        by_kind={kind: tuple(found) for kind, found in by_kind.items()},
        by_name={key: tuple(found) for key, found in by_name.items()},
    )
