"""One object that cannot be read stops nothing, and is named once."""

from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.client.object_reading import ObjectReading, object_name
from tests import hostile_values


def named(name: str, value: str) -> dict[str, object]:
    return {"metadata": {"namespace": "team", "name": name}, "value": value}


def test_what_cannot_be_read_is_left_out_and_named_once() -> None:
    said: list[str] = []
    reading = ObjectReading("pod", said.append)
    objects = [named("a", "1"), named("b", "x\x1b[2J"), named("c", "3")]
    for _ in range(3):
        assert list(reading.each(objects, lambda one: int(one["value"]))) == [1, 3]
    (sentence,) = said
    assert sentence.startswith("the pod team/b cannot be read and is left out: ValueError: invalid literal")
    assert sentence.isprintable()


def test_who_makes_new_ones_again_and_again_fills_no_log() -> None:
    said: list[str] = []
    reading = ObjectReading("pod", said.append)
    assert list(reading.each([named(f"n{n}", "") for n in range(5000)], lambda one: int(one["value"]))) == []
    assert len(said) == 1000


@given(hostile_values.altered(named("a", "1")) | st.none())
def test_every_object_has_a_name_that_can_be_said(one: object) -> None:
    assert object_name(one).isprintable()
    assert len(object_name(one)) <= 320
