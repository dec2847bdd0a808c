"""How many GPUs stay idle for inference, so that it seldom waits for a drain.

    demand over time ──► rises by window ──► mean and sigma ──► the quantile: the reserve ◄── learned from waiting

F5 of GFS (ASPLOS'26, arXiv 2509.11134) forecasts the level of demand for an hour, because its guests are killed. Ours
give a GPU back in seconds, so only what demand rises by before the next decision must be idle.
"""

import math
from dataclasses import dataclass, replace
from statistics import NormalDist, fmean, pstdev
from typing import Final

WINDOW_SECONDS: Final = 300.0
"""As in GFS: each is decided anew."""
DAY_SECONDS: Final = 86_400.0
MOST_WINDOWS: Final = 2 * 288
"""Two days: what is older is forgotten."""
_RECENT: Final = 12
"""Windows that always count: the last hour."""
_LESSON_SECONDS: Final = 3600.0
"""How often the factor is learned anew: one bad window must not count twelve times."""
LEAST_CARE, MOST_CARE = 0.1, 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandWindow:
    """What was seen of inference's demand in one window."""

    began: float
    """Unix seconds, a multiple of the window."""
    first: int
    highest: int
    """GPUs that run or wait."""
    waited: bool = False
    """Whether a pod had to wait until training gave a GPU back."""

    @property
    def rise(self) -> int:
        """By how many GPUs demand rose above what it was at first."""
        return self.highest - self.first


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandHistory:
    """Windows, oldest first; the last one goes on. Bounded by `MOST_WINDOWS`."""

    windows: tuple[DemandWindow, ...] = ()
    care: float = 1.0
    """Factor of the reserve, learned: 1 is what the forecast says."""

    def seen(self, now: float, gpus: int, *, waits: bool, quantile: float) -> "DemandHistory":
        """The history with one more look. `waits`: a pod waits for a GPU that training holds. Unix seconds."""
        began = now - now % WINDOW_SECONDS
        *before, last = self.windows or (DemandWindow(began=began, first=gpus, highest=gpus),)
        if began > last.began:
            hour_is_over = began // _LESSON_SECONDS > last.began // _LESSON_SECONDS
            waiting = waiting_share((*before, last))
            care = learned(self.care, waiting, quantile=quantile) if hour_is_over else self.care
            fresh = DemandWindow(began=began, first=gpus, highest=gpus, waited=waits)
            return DemandHistory(windows=(*before, last, fresh)[-MOST_WINDOWS:], care=care)
        last = replace(last, highest=max(last.highest, gpus), waited=last.waited or waits)
        return replace(self, windows=(*before, last))


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """How much demand rises within one window: a normal distribution, in GPUs."""

    mean: float
    sigma: float

    def quantile(self, share: float) -> float:
        """The rise that is exceeded in `1 - share` of all windows."""
        return NormalDist(self.mean, self.sigma).inv_cdf(share) if self.sigma > 0 else self.mean


def forecast(history: DemandHistory, now: float) -> Forecast:
    """From the last hour, and from the same hour of earlier days."""
    recent = now - now % WINDOW_SECONDS - _RECENT * WINDOW_SECONDS
    rises = [one.rise for one in history.windows[:-1] if one.began >= recent or _hours_apart(one.began, now) <= 0.5]
    return Forecast(mean=fmean(rises), sigma=pstdev(rises)) if rises else Forecast(mean=0.0, sigma=0.0)


def wanted_reserve(history: DemandHistory, now: float, *, quantile: float) -> int:
    """GPUs that should be idle now, however many there are: `max(0, ceil(eta * Q_p(D)))`."""
    return max(0, math.ceil(history.care * forecast(history, now).quantile(quantile) - 1e-9))


def reserve(history: DemandHistory, now: float, *, unclaimed: int, quantile: float) -> int:
    """GPUs that training must leave idle now, of those that inference neither holds nor waits for.

    `clip(ceil(eta * Q_p(D)), 0, C - D_now)`, after F5's `eta * (C - clip(floor(Q_p(D)), 0, C))`: there eta is of what
    is lent, here of what is kept.
    """
    return max(0, min(wanted_reserve(history, now, quantile=quantile), unclaimed))


def buffer_chunks(wanted: int, *, spare: int, node: int) -> int:
    """One-GPU chunks of a capacity buffer, from which a cluster autoscaler buys nodes for the `wanted` reserve.

    `spare`: GPUs that inference neither holds nor waits for, less the min of each job. `node`: those of the largest
    node. What training can give back is not bought: inference takes the reserve before training has restored it, a
    cluster autoscaler buys for chunks that have lost their room at once, and training keeps the node, again and again.
    One node of slack, lest a node that idles for the reserve be taken away and bought in turns.
    """
    return wanted if wanted > spare - node else 0


def waiting_share(windows: tuple[DemandWindow, ...]) -> float:
    """In how many of the last windows inference waited: F5's eviction rate e, of the last hour."""
    lately = windows[-_RECENT:]
    return sum(one.waited for one in lately) / len(lately) if lately else 0.0


def learned(care: float, waiting: float, *, quantile: float) -> float:
    """The factor after one more window, within bounds.

    More waiting than was chosen, `e >= 1.5(1-p)`: more care, by `e/(1-p)`, half as much again at most. Less, `e <=
    0.5(1-p)`: less care, by `1/(1.5 - e/(1-p))`, so that no GPU idles for nothing. These are the inverse of GFS's
    factors, which are of what is lent. (GFS's published code has the inverse of its paper, and can become negative.)
    """
    allowed = 1.0 - quantile
    if waiting >= 1.5 * allowed:
        care *= min(waiting / allowed, 1.5)
    elif waiting <= 0.5 * allowed:
        care /= 1.5 - waiting / allowed
    return min(max(care, LEAST_CARE), MOST_CARE)


def _hours_apart(one: float, other: float) -> float:
    """By the clock of a day."""
    apart = abs(one - other) % DAY_SECONDS
    return min(apart, DAY_SECONDS - apart) / 3600
