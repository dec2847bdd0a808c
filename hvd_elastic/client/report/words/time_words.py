"""Times and durations, as people read them."""

from datetime import datetime
from typing import Final

from hvd_elastic.client.connection.cluster_client import Json
from hvd_elastic.discovery.rules.cluster_views import unix_seconds

_DAY: Final = 86400


def duration_words(seconds: float) -> str:
    """`0.4 s`, `52 s`, `3 min 05 s`, `2 h 10 min`, `3 d 04 h`."""
    if seconds < 10:
        return f"{max(0.0, seconds):.1f} s"
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    if whole < _DAY:
        return f"{whole // 3600} h {whole // 60 % 60:02} min"
    return f"{whole // _DAY} d {whole // 3600 % 24:02} h"


def clock_words(unix: float, now: float) -> str:
    """The local time of day; with the date if that was not in the last 20 hours."""
    if now - unix >= 20 * 3600:
        return date_words(unix)
    return datetime.fromtimestamp(unix).astimezone().strftime("%H:%M:%S")


def date_words(unix: float) -> str:
    """The local date and time of day."""
    return datetime.fromtimestamp(unix).astimezone().strftime("%Y-%m-%d %H:%M")


def event_time(event: Json) -> float:
    """When an Event happened last, in Unix seconds. Its time is in one of four fields, as its maker likes."""
    series = (event.get("series") or {}).get("lastObservedTime")
    return unix_seconds(
        series or event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp")
    )
