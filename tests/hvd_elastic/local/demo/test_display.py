import io
from collections.abc import Callable, Sequence

from rich.console import Console

from hvd_elastic.local.demo.display import PLAIN_SECONDS, Display, DisplayState


def state(step: int = 9, size: int = 3, loss: float | None = 0.5) -> DisplayState:
    return DisplayState(run="hvd-elastic", seconds=1.0, capacity=3, inference=1, size=size, step=step, loss=loss)


def shown(*, terminal: bool, states: Sequence[DisplayState], clock: Callable[[], float] = lambda: 0.0) -> str:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=terminal, width=100)
    with Display(console, clock=clock) as display:
        for each in states:
            display.show(each)
    return screen.getvalue()


def test_plain_lines_come_on_change_only() -> None:
    text = shown(terminal=False, states=[state(), state(step=10), state(step=11, size=2)])

    assert text.splitlines() == [
        "hvd-elastic:   1.0 s, capacity 3, inference 1, world size 3, step 9, loss 0.500",
        "hvd-elastic:   1.0 s, capacity 3, inference 1, world size 2, step 11, loss 0.500",
    ]


def test_plain_lines_do_not_fall_silent() -> None:
    moments = iter([0.0, PLAIN_SECONDS - 1, PLAIN_SECONDS, PLAIN_SECONDS, PLAIN_SECONDS])

    text = shown(terminal=False, states=[state(), state(step=10), state(step=11)], clock=moments.__next__)

    assert len(text.splitlines()) == 2


def test_a_terminal_shows_hosts_of_training_and_inference() -> None:
    text = shown(terminal=True, states=[state(loss=None)])

    assert "training 3, inference 1 of 4" in text
