"""The loop of the live view: a thread reads the cluster, keys change what is chosen, each draws the screen anew."""

import contextlib
import logging
import os
import select
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from rich.console import Console, Group
from rich.live import Live

from hvd_elastic.client.connection.cluster_client import ClusterClient, ClusterError
from hvd_elastic.client.object_reading import ObjectReading
from hvd_elastic.client.report.job_list import ListedJob, list_job_states
from hvd_elastic.client.watch.job_screen import job_screen, worker_rows
from hvd_elastic.client.watch.keyboard import Keyboard
from hvd_elastic.client.watch.list_screen import job_rows, list_screen
from hvd_elastic.client.watch.screen_state import Screen, ScreenState, press
from hvd_elastic.client.watch.screen_text import line
from hvd_elastic.client.watch.watched_job import WatchedJob, WatchedJobReader
from hvd_elastic.system.background_threads import error_words, start_thread

log = logging.getLogger(__name__)

READ_SECONDS: Final = 2.0
_LAST_LINES: Final = {"tailLines": "200", "limitBytes": str(1 << 20)}

Shown = WatchedJob | Sequence[ListedJob] | Sequence[str]
"""What was read for Screen.JOB, Screen.LIST and Screen.LOG."""


class LiveWatch:
    """One person at one terminal. `run` returns when he leaves."""

    def __init__(
        self, cluster: ClusterClient, console: Console, *, job: tuple[str, str] | None, namespace: str | None
    ) -> None:
        """`job`: namespace and name; None: all jobs of `namespace`, or of the cluster if that is None."""
        self._cluster, self._console, self._namespace = cluster, console, namespace
        screen = Screen.LIST if job is None else Screen.JOB
        self._state = ScreenState(screen=screen, has_list=job is None, job=job)
        self._shown: Shown | None = None
        self._trouble = ""
        self._lock = threading.Lock()
        """Guards the three above."""
        self._wake, self._waker = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(self._waker, False)
        self._turn = threading.Event()
        """Set to read at once."""

    def run(self, keyboard: Keyboard) -> None:
        """Show until `q`. Raises KeyboardInterrupt, or EOFError if the terminal is gone."""
        start_thread("reader", self._read_on, log=log)
        with keyboard, Live(console=self._console, screen=True, auto_refresh=False) as live:
            while not self._state.ended:
                live.update(self._draw(), refresh=True)
                ready, _, _ = select.select([keyboard.descriptor, self._wake], [], [], None)
                if self._wake in ready:
                    os.read(self._wake, 4096)
                for key in keyboard.pressed():
                    self._take(key)

    def _take(self, key: str) -> None:
        with self._lock:
            before, self._state = self._state, press(self._state, key, rows=self._rows())
            if _subject(before) != _subject(self._state):
                self._shown = None
                self._turn.set()

    def _rows(self) -> Sequence[object]:
        match self._state.screen, self._shown:
            case Screen.JOB, WatchedJob() as view:
                return [worker.pod for worker in worker_rows(view, self._state)]
            case Screen.LIST, [*jobs]:
                listed = [job for job in jobs if isinstance(job, ListedJob)]
                return [(job.namespace, job.name) for job in job_rows(listed, self._state)]
            case _:
                return ()

    def _draw(self) -> Group:
        width, height = self._console.size
        with self._lock:
            state, shown, trouble = self._state, self._shown, self._trouble
        room = height - bool(trouble)
        warning = [line(trouble, "red", overflow="ellipsis")] if trouble else []
        match state.screen, shown:
            case Screen.JOB, WatchedJob() as view:
                drawn = job_screen(view, state, width=width, height=room)
            case Screen.LIST, [*jobs]:
                listed = [job for job in jobs if isinstance(job, ListedJob)]
                drawn = list_screen(listed, state, width=width, height=room)
            case Screen.LOG, [*lines]:
                drawn = _log_screen(state.pod, list(map(str, lines)), room)
            case _:
                subject = "/".join(state.job or (self._namespace or "all namespaces",))
                drawn = Group(line(f"reading {state.pod or subject} from {self._cluster.server} ..."))
        return Group(*warning, drawn)

    def _read_on(self) -> None:
        reader: Callable[[], Shown] | None = None
        subject: object = None
        while True:
            with self._lock:
                state = self._state
            if first := reader is None or subject != _subject(state):
                subject, reader = _subject(state), self._reader(state)
            try:
                shown, trouble = reader(), ""
            except ClusterError as error:
                shown, trouble = None, str(error)
            except Exception as error:  # noqa: BLE001 - it is shown, and what was read before stays
                shown, trouble = None, error_words(error)
            with self._lock:
                if subject == _subject(self._state):
                    self._shown, self._trouble = shown if shown is not None else self._shown, trouble
            with contextlib.suppress(BlockingIOError):  # it is full: the screen wakes up anyway
                os.write(self._waker, b"x")
            self._turn.wait(0 if first and not trouble else READ_SECONDS)
            self._turn.clear()

    def _reader(self, state: ScreenState) -> Callable[[], Shown]:
        if state.screen is Screen.LIST or state.job is None:
            quiet = ObjectReading("MPIJob", lambda _sentence: None)  # `list` names what cannot be read
            return lambda: list_job_states(self._cluster, self._namespace, quiet)
        namespace, name = state.job
        if state.screen is Screen.JOB:
            return WatchedJobReader(self._cluster, name, namespace).read
        path = f"/api/v1/namespaces/{namespace}/pods/{state.pod}/log"
        return lambda: [said.decode(errors="replace") for said in self._cluster.stream(path, _LAST_LINES)]


def _subject(state: ScreenState) -> object:
    """What has to be read for a state; all else is only drawn in another way."""
    return replace(state, sort=0, words="", is_typing=False, row=0, span=0)


def _log_screen(pod: str, lines: Sequence[str], height: int) -> Group:
    shown = [line(said, overflow="ellipsis") for said in lines[-(height - 2) :]]
    return Group(line(f"log of {pod}", "bold"), *shown, line("esc back  q quit", "reverse"))
