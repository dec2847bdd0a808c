"""What a sweep is, kept in the cluster: the ConfigMap NAME-sweep. Jobs come and go; the record has all points."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hvd_elastic.client.connection.cluster_client import ClusterClient, ClusterError, Json, NotFoundError
from hvd_elastic.client.operations.resource_paths import collection_path
from hvd_elastic.client.sweep.grid import MAX_POINTS, Point, describe
from hvd_elastic.client.sweep.sweep_plan import SweepPlan, description_of, in_kueue
from hvd_elastic.mpijob.contract import LABEL_MANAGED_BY, LABEL_PART_OF, LABEL_SWEEP, MANAGED_BY, Exit
from hvd_elastic.system.untrusted_values import UNREADABLE, json_object, typed_fields

SUFFIX: Final = "-sweep"
_KEY: Final = "sweep.json"
_SHOWN: Final = 5


class UnknownSweepError(ClusterError):
    """There is no sweep of this name."""

    exit_code = Exit.BAD_INPUT


class SweepDiffersError(ClusterError):
    """There is another sweep of this name. Nothing was changed."""

    exit_code = Exit.BAD_INPUT


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptJob:
    """One point of the sweep."""

    name: str
    point: Point


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRecord:
    """A sweep that was submitted."""

    name: str
    jobs: Sequence[SweptJob]
    at_once: int | None
    kueue: bool
    """Whether Kueue alone suspends and resumes the jobs."""
    description: Mapping[str, Any]
    """The job description without the values of any point."""
    complete: bool = False
    """Whether all jobs were written. If not, the same submission goes on where it was cut short."""
    uid: str = ""
    """Of the ConfigMap."""

    @classmethod
    def of(cls, plan: SweepPlan) -> "SweepRecord":
        """The record of what is to be submitted."""
        return cls(
            name=plan.name,
            jobs=[SweptJob(name=job.spec.name, point=job.point) for job in plan.jobs],
            at_once=plan.at_once,
            kueue=in_kueue(plan.base),
            description=description_of(plan.base),
        )

    @classmethod
    def from_json(cls, config_map: Json) -> "SweepRecord":
        """Read the ConfigMap. Raises ClusterError if it is not a record of this release."""
        meta = config_map["metadata"]
        try:
            document = json_object(config_map["data"][_KEY])
            jobs, description = [_swept(one) for one in document.pop("jobs")], document.pop("description")
            if not isinstance(description, dict) or len(jobs) > MAX_POINTS:
                raise ValueError("is no record")
            return cls(jobs=jobs, description=description, uid=meta.get("uid", ""), **typed_fields(cls, document))
        except UNREADABLE as error:
            raise ClusterError(f"the ConfigMap {meta['name']} is not a sweep of this release") from error

    @property
    def needs_runner(self) -> bool:
        """Whether jobs must wait for their turn."""
        return self.at_once is not None and self.at_once < len(self.jobs)

    def manifest(self, namespace: str) -> Json:
        """The ConfigMap."""
        document = {
            "name": self.name,
            "at_once": self.at_once,
            "kueue": self.kueue,
            "complete": self.complete,
            "description": self.description,
            "jobs": [{"job": job.name, "values": job.point} for job in self.jobs],
        }
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"{self.name}{SUFFIX}", "namespace": namespace, "labels": labels(self.name)},
            "data": {_KEY: json.dumps(document, separators=(",", ":"))},
        }


def _swept(document: Json) -> SweptJob:
    """One of `jobs`. Raises ValueError, or what reading another thing raises."""
    name, point = document["job"], document["values"]
    if not isinstance(name, str) or not all(isinstance(value, str) for value in point.values()):
        raise ValueError("is no job of a sweep")
    return SweptJob(name=name, point=point)


def labels(sweep: str) -> dict[str, str]:
    """Of everything that belongs to the sweep and to none of its jobs. No job can be called so: it has a dot."""
    return {LABEL_MANAGED_BY: MANAGED_BY, LABEL_PART_OF: f"{sweep}.sweep", LABEL_SWEEP: sweep}


def find_record(cluster: ClusterClient, name: str) -> SweepRecord:
    """The sweep of this name. Raises UnknownSweepError, which names those that are there; other ClusterErrors."""
    path = collection_path("v1", "ConfigMap", cluster.namespace)
    try:
        return SweepRecord.from_json(cluster.get(f"{path}/{name}{SUFFIX}"))
    except NotFoundError:
        maps = cluster.list(path, labelSelector=f"{LABEL_MANAGED_BY}={MANAGED_BY},{LABEL_SWEEP}")
        names = [one["metadata"]["labels"][LABEL_SWEEP] for one in maps if one["metadata"]["name"].endswith(SUFFIX)]
        there = f", which has {', '.join(sorted(names)[:_SHOWN])}" if names else ""
        raise UnknownSweepError(f"there is no sweep {name} in namespace {cluster.namespace}{there}") from None


def differences(old: SweepRecord, new: SweepRecord) -> Iterator[str]:
    """What another submission under the same name would change, a phrase for each."""
    before, after = ({job.name: describe(job.point) for job in record.jobs} for record in (old, new))
    if gone := [point for name, point in before.items() if name not in after]:
        yield f"without {_some(gone)}"
    if added := [point for name, point in after.items() if name not in before]:
        yield f"with {_some(added)}"
    keys = dict.fromkeys([*old.description, *new.description])
    for key in keys:
        if old.description.get(key) != new.description.get(key):
            yield f"{key}: {json.dumps(old.description.get(key))} -> {json.dumps(new.description.get(key))}"
    if old.at_once != new.at_once:
        yield f"at once: {old.at_once or 'all'} -> {new.at_once or 'all'}"


def _some(points: Sequence[str]) -> str:
    more = f" and {len(points) - _SHOWN} more" if len(points) > _SHOWN else ""
    return f"{'; '.join(points[:_SHOWN])}{more}"
