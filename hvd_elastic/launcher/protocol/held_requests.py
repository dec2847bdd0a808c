"""HTTP requests that are held open until the world has decided on their answers."""

import itertools
import queue
from collections.abc import Callable

from hvd_elastic.launcher.core.actions import Ticket


class HeldRequests:
    """Each request waits in a thread of its own, in `ask`, until the driver's thread answers its ticket."""

    def __init__(self) -> None:
        self._answers: dict[Ticket, queue.SimpleQueue[str]] = {}
        self._numbers = itertools.count(1)

    def ask(self, submit: Callable[[Ticket], None]) -> str:
        """Hand a new ticket to `submit` and wait for its answer."""
        answer: queue.SimpleQueue[str] = queue.SimpleQueue()
        ticket = next(self._numbers)
        self._answers[ticket] = answer
        submit(ticket)
        return answer.get()

    def answer(self, ticket: Ticket, text: str) -> None:
        """Answer a request; does nothing if that was done already."""
        answer = self._answers.pop(ticket, None)
        if answer:
            answer.put(text)

    def answer_all(self, text: str) -> None:
        """Give all open requests the same answer."""
        for ticket in list(self._answers):
            self.answer(ticket, text)
