"""Keeps the history of inference's demand in a ConfigMap, so that the next leader goes on from it, or `--once`."""

import json
import logging
from collections.abc import Sequence
from typing import Final

from hvd_elastic.client.connection.cluster_client import ClusterClient, ClusterError, ForbiddenError, NotFoundError
from hvd_elastic.mpijob.contract import LABEL_MANAGED_BY, MANAGED_BY
from hvd_elastic.policy.reserve import LEAST_CARE, MOST_CARE, MOST_WINDOWS, DemandHistory, DemandWindow
from hvd_elastic.system.untrusted_values import UNREADABLE, json_object, typed_fields

log = logging.getLogger(__name__)

DEMAND_NAME: Final = "hvd-elastic-autoscaler-demand"
_KEY: Final = "demand.json"


class DemandStore:
    """One ConfigMap in one namespace. Who may not read or write it remembers nothing beyond its own life."""

    def __init__(self, cluster: ClusterClient, namespace: str) -> None:
        self._cluster, self._collection = cluster, f"/api/v1/namespaces/{namespace}/configmaps"
        self._written = 0.0
        """When the last window began that was written, in Unix seconds."""

    def read(self) -> DemandHistory:
        """What was written last; nothing if nobody has. Raises ClusterError: a fault is no reason to begin anew."""
        try:
            found = self._cluster.get(f"{self._collection}/{DEMAND_NAME}")
        except NotFoundError:
            return DemandHistory()
        except ForbiddenError as error:
            log.warning("the reserve is learned anew: %s", error)
            return DemandHistory()
        text = (found.get("data") or {}).get(_KEY, "")
        try:
            return from_text(text) if text else DemandHistory()  # it is applied empty
        except ValueError as error:
            log.warning("the reserve is learned anew, the ConfigMap %s cannot be read: %s", DEMAND_NAME, error)
            return DemandHistory()

    def write(self, history: DemandHistory) -> None:
        """Once for each window, as soon as the next one has begun. What cannot be written is no harm yet."""
        began = history.windows[-1].began if history.windows else 0.0
        if began == self._written:
            return
        data = {"data": {_KEY: to_text(history)}}
        try:
            self._apply(data)
        except ClusterError as error:
            log.info("the history of demand is not written: %s", error)
            return
        self._written = began

    def _apply(self, data: dict[str, dict[str, str]]) -> None:
        try:
            self._cluster.patch(f"{self._collection}/{DEMAND_NAME}", data)
        except NotFoundError:
            meta = {"name": DEMAND_NAME, "labels": {LABEL_MANAGED_BY: MANAGED_BY}}
            self._cluster.create(self._collection, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, **data})


def to_text(history: DemandHistory) -> str:
    """One line of JSON: two days are 20 KiB at most."""
    windows = [[int(one.began), one.first, one.highest, int(one.waited)] for one in history.windows]
    return json.dumps({"care": history.care, "windows": windows}, separators=(",", ":"))


def from_text(text: str) -> DemandHistory:
    """The inverse. Raises ValueError for any other text."""
    try:
        known = json_object(text)
        windows = tuple(map(_window, known["windows"][-MOST_WINDOWS:]))
        history = DemandHistory(windows=windows, **typed_fields(DemandHistory, {"care": known["care"]}))
    except UNREADABLE as error:
        raise ValueError(f"{error!r}") from error
    if not LEAST_CARE <= history.care <= MOST_CARE:
        raise ValueError(f"a care of {history.care}")
    return history


def _window(values: Sequence[object]) -> DemandWindow:
    began, first, highest, waited = values
    document = {"began": began, "first": first, "highest": highest, "waited": bool(waited)}
    return DemandWindow(**typed_fields(DemandWindow, document))
