"""What Kueue's configuration means for elastic jobs. Read in Kueue's source of August 2026, which is 0.19.

- `waitForPodsReady`: a job that is admitted and has not all pods ready within `timeout` is evicted whole, and queued
  again (`pkg/controller/core/workload_controller.go`, `admittedNotReadyWorkload`). An MPIJob counts as ready once the
  operator has called it Running (`pkg/controller/jobs/mpijob/mpijob_controller.go`, `PodsReady`), and that takes all of
  its workers at once (mpi-operator 0.8.2, `updateMPIJobStatus`). Later losses do not take the word back, so
  `recoveryTimeout` never ends one. With `blockAdmission` nobody else is admitted meanwhile.
- In `config.kueue.x-k8s.io/v1beta1` it is on with `enable: true` (`apis/config/v1beta1/defaults.go`). In v1beta2 it is
  on where it is written, and from 0.19 on where nothing is written, with 30 minutes
  (`apis/config/v1beta2/defaults.go`); the feature gate `DisableWaitForPodsReady` turns it off.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hvd_elastic.mpijob.yaml_input.yaml_composer import UnreadableError, read_values

_OLD: Final = "config.kueue.x-k8s.io/v1beta1"
ON_BY_DEFAULT: Final = (0, 19)
"""The first release that waits though nobody asked for it."""
ONE_BY_ONE: Final = (0, 18)
"""The first release whose workers may be queued one by one: the operator uses their names again."""
_GATE: Final = "DisableWaitForPodsReady"
_ORPHANS: Final = "FinishOrphanedWorkloads"
"""`pkg/features/kube_features.go`."""
_DEFAULT_TIMEOUT: Final = {_OLD: "5m"}
"""Of v1beta1; 30 minutes in v1beta2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodsReadyWait:
    """Kueue evicts jobs that do not have all their pods in time."""

    timeout: str
    """As Go writes durations: `30m`."""
    blocks_others: bool
    """Whether no other job is admitted meanwhile."""
    is_default: bool
    """Whether nobody asked for it: this release of Kueue does so unless it is told otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KueueConfiguration:
    """What matters of it here."""

    manages_all_jobs: bool = False
    """Whether it also suspends jobs that name no queue."""
    takes_pods: bool = True
    """Whether it admits single pods: `pod` is among its frameworks, or nothing says which these are."""
    finishes_orphans: bool = True
    """Whether no pod ever has the Workload of an older one of its name (`FinishOrphanedWorkloads`, from 0.18 on)."""
    pods_ready_wait: PodsReadyWait | None = None
    """None: a job may wait for its pods for ever."""


def kueue_configuration(
    text: str, *, release: tuple[int, int] | None = None, arguments: Sequence[str] = ()
) -> KueueConfiguration:
    """Read the ConfigMap's text.

    Args:
        text: YAML documents; empty or unreadable text says nothing.
        release: of the manager, from its image. None: not known, so no newer default is taken to be in force.
        arguments: of the manager. Its feature gates may stand there.
    """
    found = _configuration(text)
    gates = {**_mapping(found.get("featureGates")), **dict(_gates(arguments))}
    wait = None if gates.get(_GATE) is True else _wait(found, release)
    frameworks = _mapping(found.get("integrations")).get("frameworks") if found else ["pod"]
    return KueueConfiguration(
        manages_all_jobs=found.get("manageJobsWithoutQueueName") is True,
        takes_pods=isinstance(frameworks, list) and "pod" in frameworks,
        finishes_orphans=gates.get(_ORPHANS, release is None or release >= ONE_BY_ONE) is True,
        pods_ready_wait=wait,
    )


def _wait(found: Mapping[str, Any], release: tuple[int, int] | None) -> PodsReadyWait | None:
    version = str(found.get("apiVersion", ""))
    is_asked = found.get("waitForPodsReady") is not None
    asked = _mapping(found.get("waitForPodsReady"))
    if version == _OLD:
        is_on = asked.get("enable") is True
    else:
        is_on = is_asked or (release is not None and release >= ON_BY_DEFAULT)
    if not is_on:
        return None
    return PodsReadyWait(
        timeout=str(asked.get("timeout") or _DEFAULT_TIMEOUT.get(version, "30m")),
        blocks_others=asked.get("blockAdmission", version == _OLD) is True,
        is_default=not is_asked,
    )


def _configuration(text: str) -> Mapping[str, Any]:
    """The first document of Kueue's kind."""
    try:
        documents = read_values(text)
    except UnreadableError:
        return {}
    ours = (one for one in documents if isinstance(one, dict) and one.get("kind", "Configuration") == "Configuration")
    return next(ours, {})


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _gates(arguments: Sequence[str]) -> Iterable[tuple[str, bool]]:
    """Of `--feature-gates=A=true,B=false`."""
    given = re.search(r"--feature-gates[= ](\S+)", " ".join(arguments))
    for pair in given[1].split(",") if given else ():
        name, _, value = pair.partition("=")
        yield name, value.lower() == "true"
