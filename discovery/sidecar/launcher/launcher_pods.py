"""The pods of a job's launchers, as far as they are still there."""

import json
import logging
import time
from pathlib import Path
from typing import Final

from hvd_elastic.discovery.kube.api_server import ApiError, ApiServer
from hvd_elastic.discovery.kube.mpijob_place import MPIJobPlace
from hvd_elastic.discovery.ledger.launcher_view import LauncherView
from hvd_elastic.mpijob.contract import LABEL_JOB_NAME, LABEL_JOB_ROLE, LABEL_REPLICA_TYPE, STATUS_FILE, Role

log = logging.getLogger(__name__)

END_SECONDS: Final = 1.5
"""At most, for the kubelet's word on how a launcher ended."""
LOOK_SECONDS: Final = 0.2


class LauncherPods:
    """Reads them when asked. Not thread-safe."""

    def __init__(self, server: ApiServer, place: MPIJobPlace) -> None:
        role = LABEL_REPLICA_TYPE if place.version == "v1" else LABEL_JOB_ROLE
        self._server = server
        self._path = f"{place.core}/pods"
        self._query = {"labelSelector": f"{LABEL_JOB_NAME}={place.job},{role}={Role.LAUNCHER}"}

    def read(self) -> dict[str, LauncherView] | None:
        """By UID; None if the API server does not answer."""
        try:
            pods = self._server.get(self._path, self._query)["items"]
        except ApiError as error:
            log.info("the launchers' pods cannot be read: %s", error)
            return None
        return {pod["metadata"]["uid"]: LauncherView.from_json(pod) for pod in pods}

    def await_end(self, uid: str) -> dict[str, LauncherView] | None:
        """The same, once the kubelet has said how the container of launcher `uid` ended, or it is late."""
        deadline = time.monotonic() + END_SECONDS
        while True:
            launchers = self.read()
            is_open = launchers is None or ((own := launchers.get(uid)) is not None and not own.is_over)
            if not is_open or time.monotonic() >= deadline:
                return launchers
            time.sleep(LOOK_SECONDS)


def exit_code_of(run_dir: Path) -> int | None:
    """The exit code that the launcher beside this has left in its STATUS_FILE. A plain `horovodrun` leaves none."""
    try:
        code = json.loads((run_dir / STATUS_FILE).read_text(encoding="utf-8"))["exit_code"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return code if isinstance(code, int) else None
