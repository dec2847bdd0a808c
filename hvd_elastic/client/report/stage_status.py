"""The data set that a job waits for: how much of it is there, and what is in the way of the rest."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from hvd_elastic.client.connection.cluster_client import Json
from hvd_elastic.client.job_lookup import description_of
from hvd_elastic.client.report.words.cause_words import placement_words
from hvd_elastic.client.report.words.start_words import start_words
from hvd_elastic.discovery.kube.conditions import true_condition
from hvd_elastic.discovery.rules.cluster_views import PodView
from hvd_elastic.mpijob.contract import ANNOTATION_BEGUN
from hvd_elastic.staging.progress_line import last_progress, progress_words
from hvd_elastic.system.untrusted_values import one_line

_MAX_SOURCE: Final = 2048
"""Characters of a URL."""


class StagePhase(StrEnum):
    """What the staging Job of a job does."""

    WAITING = "waiting"
    """Its pod has not started."""
    COPYING = "copying"
    REARRANGING = "rearranging"
    """All objects are there, and the job's `rearrange` command runs."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageFacts:
    """The staging Job of a job, as the API server has it."""

    source: str
    rearranges: bool
    """Whether a command is to run after the copy."""
    job: Json
    """The Kubernetes Job."""
    pod: Json | None = None
    """Its newest pod."""
    log: tuple[str, ...] = ()
    """The last lines of that pod's log; empty if they were not read."""
    events: tuple[Json, ...] = ()
    """Of that pod, while it starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageStatus:
    """A data set that is not whole. Numbers of -1: not known, or not yet."""

    source: str
    phase: StagePhase
    objects: int = -1
    of_objects: int = -1
    size_bytes: int = -1
    of_bytes: int = -1
    words: str = ""
    """The same for people, and why, where that says more."""


def wanted_stage(mpijob: Json) -> tuple[str, bool] | None:
    """The URL that a job stages, and whether it rearranges it. None: it stages nothing, or a worker has trained."""
    annotations = mpijob["metadata"].get("annotations") or {}
    if annotations.get(ANNOTATION_BEGUN) == "true":
        return None
    stage = description_of(mpijob).get("stage")
    if not isinstance(stage, dict):
        return None
    source = one_line(stage.get("source"), _MAX_SOURCE)
    return (source, bool(stage.get("rearrange"))) if source else None


def stage_status(facts: StageFacts | None) -> StageStatus | None:
    """What training waits for. None: there is no staging Job, or it has ended well."""
    if facts is None or true_condition(facts.job, "Complete"):
        return None
    progress = last_progress(facts.log)
    told = progress_words(progress) if progress else ""
    numbers = {
        "objects": progress.objects if progress else -1,
        "of_objects": progress.of_objects if progress else -1,
        "size_bytes": progress.size_bytes if progress else -1,
        "of_bytes": progress.of_bytes if progress else -1,
    }
    if failed := true_condition(facts.job, "Failed"):
        why = str(failed.get("message") or failed.get("reason") or "it has failed")
        return StageStatus(source=facts.source, phase=StagePhase.FAILED, words=_joined(told, why), **numbers)
    if not _runs(facts.pod):
        return StageStatus(source=facts.source, phase=StagePhase.WAITING, words=_pod_words(facts), **numbers)
    rearranges = facts.rearranges and progress is not None and progress.is_whole
    phase = StagePhase.REARRANGING if rearranges else StagePhase.COPYING
    return StageStatus(source=facts.source, phase=phase, words=told, **numbers)


def stage_line(stage: StageStatus) -> str:
    """`data set s3://b/set: copying, 12 of 90 objects, ...; training waits for it`."""
    told = f", {stage.words}" if stage.words else ""
    way_out = "; hvd-elastic stage FILE begins again" if stage.phase is StagePhase.FAILED else ""
    return f"data set {stage.source}: {stage.phase}{told}; training waits for it{way_out}"


def newest(objects: list[Json]) -> Json | None:
    """The object that was made last."""
    return max(objects, key=lambda one: str(one["metadata"].get("creationTimestamp") or ""), default=None)


def _runs(pod: Json | None) -> bool:
    return pod is not None and (pod.get("status") or {}).get("phase") == "Running"


def _pod_words(facts: StageFacts) -> str:
    if facts.pod is None:
        return "its pod is not made yet"
    view = PodView.from_json(facts.pod)
    if view.has_ended:
        return "its next pod is not made yet"
    if not view.node:
        return f"its pod is pending: {placement_words(facts.pod)}"
    why = start_words(facts.pod, facts.events)
    return f"its pod is starting: {why}" if why else "its pod is starting"


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)
