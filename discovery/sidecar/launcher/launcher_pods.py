"""The pods of a job's launchers, as far as they are still there."""

import json
import logging
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from hvd_elastic.discovery.kube.api_server import ApiError, ApiServer
from hvd_elastic.discovery.ledger.history.job_history import GONE
from hvd_elastic.discovery.ledger.launcher_view import LauncherView, ends_job
from hvd_elastic.discovery.rules.restart_budget import DEFAULT_BACKOFF_LIMIT
from hvd_elastic.discovery.sidecar.sidecar_options import SidecarOptions
from hvd_elastic.mpijob.contract import MISTAKE_LINE, STATUS_FILE, Role
from hvd_elastic.system.plain_words import printable

log = logging.getLogger(__name__)

END_SECONDS: Final = 1.5
"""At most, for the kubelet's word on how a launcher ended."""
LOOK_SECONDS: Final = 0.2
MAX_SENTENCE: Final = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherWord:
    """How a launcher has ended, in its own words."""

    exit_code: int | None = None
    sentence: str = ""
    """Its last one, which is the script's where that has failed."""


class LauncherPods:
    """Reads them when asked. Not thread-safe."""

    def __init__(self, server: ApiServer, options: SidecarOptions) -> None:
        self._server, self._options = server, options
        self.own = LauncherView(pod=f"{options.job}-launcher", uid=options.pod_uid)
        """The one beside this sidecar, as long as it was not seen."""

    def read(self) -> dict[str, LauncherView] | None:
        """By UID; None if the API server does not answer."""
        place = self._options.place
        try:
            pods = self._server.get(f"{place.core}/pods", place.pods_of(Role.LAUNCHER))["items"]
        except ApiError as error:
            log.info("the launchers' pods cannot be read: %s", error)
            return None
        return {pod["metadata"]["uid"]: LauncherView.from_json(pod) for pod in pods}

    def has(self, uid: str) -> bool:
        """Whether one of this UID is there. Raises ApiError if the API server does not answer."""
        if (launchers := self.read()) is None:
            raise ApiError("the launchers' pods cannot be read")
        return uid in launchers

    def own_end(self, backoff_limit: int | None) -> tuple[LauncherView, bool]:
        """How the launcher beside this has ended, as far as it is known, and whether no other one follows.

        `backoff_limit`: the MPIJob's.
        """
        left = last_word(self._options.run_dir)
        launchers = self.read() if left.exit_code is not None else self._await_end()
        if launchers is None:
            own, launchers = replace(self.own, exit_code=left.exit_code), {}
        else:
            own = launchers.pop(self.own.uid, replace(self.own, is_over=True, reason=GONE))
            own = own if own.is_over else replace(own, exit_code=left.exit_code)
        if own.has_failed and not own.reason:
            own = replace(own, reason=left.sentence)
        restarts = DEFAULT_BACKOFF_LIMIT if backoff_limit is None else backoff_limit
        # The legacy operator's launcher is a bare pod, which nobody makes again.
        restarts = restarts if self._options.version == "v2beta1" else 0
        return own, ends_job(own, launchers.values(), restarts=restarts)

    def _await_end(self) -> dict[str, LauncherView] | None:
        """As `read`, once the kubelet has said how the container of this launcher ended, or it is late."""
        deadline = time.monotonic() + END_SECONDS
        while True:
            launchers = self.read()
            is_open = launchers is None or ((own := launchers.get(self.own.uid)) is not None and not own.is_over)
            if not is_open or time.monotonic() >= deadline:
                return launchers
            time.sleep(LOOK_SECONDS)


def last_word(run_dir: Path) -> LauncherWord:
    """What the launcher beside this has left in its STATUS_FILE. A plain `horovodrun` leaves none."""
    try:
        document = json.loads((run_dir / STATUS_FILE).read_text(encoding="utf-8"))
        code, reason = document["exit_code"], document.get("reason")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return LauncherWord()
    lines = reason.splitlines() if isinstance(reason, str) else []
    said = [line.strip() for line in lines if line.strip() and line.strip() != MISTAKE_LINE]
    sentence = printable(said[-1][:MAX_SENTENCE]) if said else ""
    return LauncherWord(
        exit_code=code if isinstance(code, int) else None, sentence=sentence.removeprefix("hvd-elastic: ")
    )
