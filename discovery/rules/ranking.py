"""The verdicts on all pods, kept in order: one change costs one place, not a sort of all."""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Mapping
from operator import attrgetter

from hvd_elastic.discovery.rules.eligibility import (
    Candidate,
    EligibilityRules,
    EligibleHosts,
    LeftOut,
    assemble,
    order_of_left_out,
)
from hvd_elastic.discovery.snapshot import Host

Verdict = Candidate | LeftOut

_key = attrgetter("key")


class Ranking:
    """By pod UID. `answer` is what `eligibility.assemble` makes of the same verdicts, and says what is new in it."""

    def __init__(self) -> None:
        self._verdicts: dict[str, Verdict] = {}
        self._ranked: list[Candidate] = []
        self._hosts: list[Host] = []
        """Of the candidates, in their order."""
        self._lines: list[bytes] = []
        """Theirs: to collect a thousand from their hosts at each change would cost more than all else that is done."""
        self._left_out: list[LeftOut] = []
        self._on_address: Counter[str] = Counter()
        self._risky = 0
        self._touched: set[str] | None = None
        """UIDs whose verdict has changed since the launcher was told; None: any may have."""
        self._is_plain = False
        """Whether the last answer offered every candidate."""

    def put(self, uid: str, verdict: Verdict) -> bool:
        """Take a verdict; whether it differs from the one before."""
        if self._verdicts.get(uid) == verdict:
            return False
        self.drop(uid)
        self._verdicts[uid] = verdict
        if isinstance(verdict, LeftOut):
            insort(self._left_out, verdict, key=order_of_left_out)
        else:
            place = bisect_left(self._ranked, verdict.key, key=_key)
            self._ranked.insert(place, verdict)
            self._hosts.insert(place, verdict.host)
            self._lines.insert(place, verdict.host.line)
            self._on_address[verdict.host.address] += 1
            self._risky += bool(verdict.risk)
        return True

    def drop(self, uid: str) -> None:
        """Forget a pod."""
        if self._touched is not None:
            self._touched.add(uid)
        verdict = self._verdicts.pop(uid, None)
        if isinstance(verdict, LeftOut):
            place = bisect_left(self._left_out, order_of_left_out(verdict), key=order_of_left_out)
            del self._left_out[place]
        elif verdict is not None:
            place = bisect_left(self._ranked, verdict.key, key=_key)  # a key has the UID in it: no other shares it
            del self._ranked[place], self._hosts[place], self._lines[place]
            self._leave(verdict)

    def verdict(self, uid: str) -> Verdict | None:
        """On one pod."""
        return self._verdicts.get(uid)

    def clear(self) -> None:
        """Forget all."""
        for part in (self._verdicts, self._ranked, self._hosts, self._lines, self._left_out, self._on_address):
            part.clear()
        self._risky = 0
        self._touched = None

    def answer(self, rules: EligibilityRules, instead: Mapping[str, Verdict] | None = None) -> EligibleHosts:
        """Decide. `instead`: verdicts that hold for this once."""
        self._is_plain = not (instead or self._risky or len(self._on_address) != len(self._ranked))
        if not self._is_plain:
            return assemble((self._verdicts | dict(instead or {})).values(), rules)
        news = None if self._touched is None else {uid: self._offered(uid) for uid in self._touched}
        return EligibleHosts(
            hosts=tuple(self._hosts), left_out=tuple(self._left_out), lines=b"".join(self._lines), news=news
        )

    def told(self) -> None:
        """The launcher knows the last answer: the next one has news only of what changes from now on."""
        self._touched = set() if self._is_plain else None

    def _offered(self, uid: str) -> Host | None:
        verdict = self._verdicts.get(uid)
        return verdict.host if isinstance(verdict, Candidate) else None

    def _leave(self, candidate: Candidate) -> None:
        address = candidate.host.address
        self._on_address[address] -= 1
        if not self._on_address[address]:
            del self._on_address[address]
        self._risky -= bool(candidate.risk)
