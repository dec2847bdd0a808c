"""Turns go on over an API server that does not answer, and only those in which it does count as alive."""

from threading import Event

from hvd_elastic.client.connection.cluster_client import ClusterError
from hvd_elastic.decide.controller_turns import take_turns


def test_a_turn_without_an_answer_is_followed_by_another() -> None:
    stop, told = Event(), list[str]()

    def turn() -> None:
        told.append("turn")
        if len(told) == 1:
            raise ClusterError("away")
        stop.set()

    take_turns(turn, stop, period=0.001, alive=lambda: told.append("alive"))
    assert told == ["turn", "turn", "alive"]
