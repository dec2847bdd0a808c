"""The other objects of the stream, such as Roles and PersistentVolumeClaims, which the rules take into account."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from hvd_elastic.mpijob.lint.document.manifest_view import ManifestView


@dataclass(frozen=True, slots=True, kw_only=True)
class RelatedObjects:
    """The objects of the stream other than MPIJobs, indexed because a stream can have a thousand jobs."""

    by_kind: Mapping[str, tuple[ManifestView, ...]]
    by_name: Mapping[tuple[str, str], tuple[ManifestView, ...]]
    """By kind and name."""

    def of_kind(self, *kinds: str, namespace: str | None = None) -> Iterator[ManifestView]:
        """Objects of these kinds; with `namespace`, only those in that namespace."""
        for kind in kinds:
            yield from _in_namespace(self.by_kind.get(kind, ()), namespace)

    def named(self, kind: str, name: str | None, namespace: str | None = None) -> ManifestView:
        """The object of that kind and name; an empty view if the stream does not have it."""
        found = _in_namespace(self.by_name.get((kind, name), ()), namespace) if name else iter(())
        return next(found, ManifestView(None))


def _in_namespace(views: tuple[ManifestView, ...], namespace: str | None) -> Iterator[ManifestView]:
    for view in views:
        if namespace is None or (view.get("metadata", "namespace").text or "default") == namespace:
            yield view


def index_objects(views: Iterable[ManifestView]) -> RelatedObjects:
    """Indexes the objects by kind, and by kind and name."""
    by_kind: dict[str, list[ManifestView]] = {}
    by_name: dict[tuple[str, str], list[ManifestView]] = {}
    for view in views:
        kind, name = view.get("kind").text or "", view.get("metadata", "name").text or ""
        by_kind.setdefault(kind, []).append(view)
        by_name.setdefault((kind, name), []).append(view)
    return RelatedObjects(
        by_kind={kind: tuple(found) for kind, found in by_kind.items()},
        by_name={key: tuple(found) for key, found in by_name.items()},
    )
