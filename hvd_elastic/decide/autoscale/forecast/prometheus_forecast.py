"""What Prometheus says inference will need soon: one instant query, such as `predict_linear` of its replicas."""

import logging
import math
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlencode

from hvd_elastic.system.untrusted_values import MOST_CHARACTERS, UNREADABLE, json_object

log = logging.getLogger(__name__)

_SECONDS: Final = 5.0
"""An answer that takes longer would hold up the turn."""


@dataclass(slots=True, kw_only=True)
class PrometheusForecast:
    """Asks one server one question, each turn. A server that is away says nothing, and holds up nobody."""

    url: str
    """`http://prometheus.monitoring:9090`."""
    query: str
    """PromQL: GPUs that inference will hold in all. The values of a vector are added up."""
    _is_away: bool = field(default=False, init=False)

    def gpus(self) -> int:
        """The answer; 0 if there is none."""
        try:
            answer = self._ask()
        except (OSError, *UNREADABLE) as error:
            if not self._is_away:
                log.warning("Prometheus gives no forecast: %s", error)
            self._is_away = True
            return 0
        self._is_away = False
        return answer

    def _ask(self) -> int:
        import urllib3

        try:
            url = f"{self.url.rstrip('/')}/api/v1/query?{urlencode({'query': self.query})}"
            response = urllib3.request("GET", url, timeout=_SECONDS, retries=False, preload_content=False)
            try:
                text = response.read(MOST_CHARACTERS + 1)
            finally:
                response.close()
        except urllib3.exceptions.HTTPError as error:
            raise ConnectionError(str(error)) from error
        return forecast_of(json_object(text.decode()))


def forecast_of(answer: dict[str, Any]) -> int:
    """GPUs, rounded up, of the answer to an instant query (https://prometheus.io/docs/prometheus/latest/querying/api).

    Raises ValueError for an error or a result that is neither a vector nor a scalar, and for other texts KeyError,
    TypeError or IndexError.
    """
    if answer["status"] != "success":
        raise ValueError(str(answer.get("error", "no success")))
    kind, result = answer["data"]["resultType"], answer["data"]["result"]
    if kind not in {"vector", "scalar"}:
        raise ValueError(f"the query gives a {kind}, and a vector or a scalar is needed")
    values = (float(value) for _, value in ([result] if kind == "scalar" else [one["value"] for one in result]))
    total = sum(value for value in values if math.isfinite(value))
    return max(0, math.ceil(total - 1e-9))
