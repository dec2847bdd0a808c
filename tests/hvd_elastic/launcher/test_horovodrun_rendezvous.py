"""Who may pass into `hvd.init()` under `horovodrun`, in whatever order its workers come, end and are replaced."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hvd_elastic.launcher.core.slot_placement import SlotKey
from hvd_elastic.launcher.horovodrun.horovodrun_rendezvous import WorldGate
from tests.properties import examples

KEYS: list[SlotKey] = [(host, slot) for host in "abc" for slot in range(2)]


class Gates(RuleBasedStateMachine):
    """One gate, and a model of it: who of the present world has come, and what its members have got."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = WorldGate()
        self.members: set[SlotKey] = set()
        self.answers: dict[SlotKey, list[str]] = {}
        self.left: list[SlotKey] = []
        self.is_open = self.is_lost = False

    @rule(members=st.sets(st.sampled_from(KEYS), min_size=1))
    def form(self, members: set[SlotKey]) -> None:
        self.left = sorted(members)
        self.gate.form(self.left)
        assert all(answers in (["again"], ["go"]) for answers in self.answers.values()), "nobody is left behind"
        self.members, self.answers, self.is_open, self.is_lost = members, {}, False, False

    @rule(data=st.data())
    def arrive(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from([key for key in KEYS if key not in self.answers] or [("other", 0)]))
        got: list[str] = []
        self.gate.arrive(key, got.append)
        if key in self.members:
            self.answers[key] = got
        else:
            assert got == ["again"], "it has no place in this world"

    @rule()
    def one_of_another_build_goes_past(self) -> None:
        self.gate.pass_by()
        self.is_open |= not self.is_lost

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def a_member_ends(self, data: st.DataObject) -> None:
        ended = data.draw(st.sampled_from(sorted(self.members)))
        assert self.gate.lose(ended)
        self.left = [member for member in self.left if member != ended]
        self.is_lost = True

    @rule()
    def a_stranger_to_this_world_ends(self) -> None:
        assert not self.gate.lose(("other", 0))

    @invariant()
    def one_of_those_that_are_left_is_the_first(self) -> None:
        assert [key for key in KEYS if self.gate.is_first(key)] == self.left[:1]

    @invariant()
    def all_get_the_same_at_the_same_time(self) -> None:
        self.is_open |= bool(self.members) and self.answers.keys() == self.members and not self.is_lost
        for answers in self.answers.values():
            assert answers in (["go"], ["again"]) if self.is_open or self.is_lost else answers == []
            assert answers != ["again"] or self.is_lost
            assert answers != ["go"] or self.is_open


TestGates = Gates.TestCase
TestGates.settings = settings(max_examples=examples(100), deadline=None)
