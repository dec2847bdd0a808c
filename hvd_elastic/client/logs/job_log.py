"""Reads the log of a job: one request after the other, over cut streams, rotated files and new launchers."""

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any, Final, Protocol

from hvd_elastic.client.connection.cluster_client import (
    ClusterError,
    CredentialsError,
    ForbiddenError,
    Json,
    NotFoundError,
    RefusedError,
    UnreachableError,
)
from hvd_elastic.client.connection.long_wait import LongWait
from hvd_elastic.client.logs.launcher_runs import JobLaunchers, LauncherRun, RunState, job_launchers
from hvd_elastic.client.logs.log_line import LogLine, parse_line, stamped_second
from hvd_elastic.client.logs.log_position import Arrival, LogPosition
from hvd_elastic.client.logs.log_reading import LogRequest, NextStep, Reading, first_runs, next_reading
from hvd_elastic.mpijob.contract import LABEL_JOB_NAME
from hvd_elastic.system.backoff import Backoff

_SILENCE_SECONDS: Final = 60.0
"""A stream without a line for so long is asked for again: the network may have forgotten the connection."""
_RETRY: Final = Backoff(first_seconds=0.5, most_seconds=2.0)
_WAIT_SECONDS: Final = 1.0
"""Between two looks for the next launcher."""
_LAST_ATTEMPTS: Final = 5
"""Requests in a row for the log of a launcher that has ended, until what they lack is given up."""


class LogSource(Protocol):
    """What is asked of `hvd_elastic.client.connection.cluster_client.ClusterClient`."""

    def get(self, path: str, **query: str) -> Json: ...
    def list(self, path: str, **query: str) -> Iterator[Json]: ...
    def stream(
        self, path: str, query: Mapping[str, str], *, silence_seconds: float | None = None
    ) -> Iterator[bytes]: ...


class NoLogError(ClusterError):
    """The job is there, and nothing that it has printed can be read."""


class JobLog:
    """The log of one MPIJob."""

    def __init__(
        self,
        source: LogSource,
        mpijob: Mapping[str, Any],
        *,
        say: Callable[[str], None] = lambda _sentence: None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """Sends nothing yet.

        Args:
            source: the API server.
            mpijob: the job, as the API server has it.
            say: is told what a reader must know beside the lines.
            pause: sleeps so many seconds.
        """
        meta = mpijob["metadata"]
        self._looking = LongWait(say=self._tell, sleep=pause)
        self._reading = LongWait(say=self._tell, sleep=pause)
        """Apart: who may look at the job may still lack the right to read its log."""
        self._source, self._say, self._pause = source, say, pause
        self._name, self._uid = meta["name"], meta["uid"]
        self._mpijob = f"/apis/{mpijob['apiVersion']}/namespaces/{meta['namespace']}/mpijobs/{meta['name']}"
        self._pods = f"/api/v1/namespaces/{meta['namespace']}/pods"
        self._seen = mpijob
        self._launchers = JobLaunchers(job=self._name)
        self._said = ""
        self._fruitless = 0
        """Requests in a row that brought no new line."""
        self._is_answered = False
        """Whether the last request brought a line at all: then its end is silence, and no fault."""

    def read(self, request: LogRequest) -> Iterator[LogLine]:
        """The lines that are asked for, in the order in which they were written. With `follow` it ends with the job.

        Raises NoLogError if there is nothing to read, and ClusterError. While it follows, only credentials and rights
        that stay refused end it.
        """
        self._launchers = launchers = self._look()
        self._looking.answered()
        runs = first_runs(launchers, request)
        if not runs and (request.previous or launchers.ended or not request.follow):
            raise NoLogError(self._nothing(request))
        query = _first_query(request)
        begins_late = bool(query) or request.since_seconds is not None
        positions = [LogPosition(begins_late=begins_late) for _ in runs]
        lines = chain.from_iterable(
            self._request(run, position, request, query) for run, position in zip(runs, positions, strict=True)
        )
        yield from lines if request.tail is None else deque(lines, maxlen=request.tail)
        if request.follow:
            done = Reading(run=runs[-1], past=launchers.upto(runs[-1])) if runs else None
            yield from self._follow(done, positions[-1] if runs else LogPosition(), request)

    def _follow(self, done: Reading | None, position: LogPosition, request: LogRequest) -> Iterator[LogLine]:
        while True:
            self._pause(_RETRY.ceiling(self._fruitless))
            self._launchers = self._looking.look(self._look)
            step, reading = next_reading(done, self._launchers)
            if step is NextStep.END:
                self._tell(f"job {self._name} {self._launchers.ended}")
                return
            if reading is None:
                self._tell(f"{self._launchers.waits_for}: waiting for the next launcher")
                self._pause(_WAIT_SECONDS)
                continue
            if done is None or reading.run.key != done.run.key:
                self._announce(done, reading)
                position, self._fruitless = LogPosition(), 0
            is_complete = yield from self._advance(reading.run, position, request)
            done = replace(reading, is_complete=is_complete)

    def _advance(self, run: LauncherRun, position: LogPosition, request: LogRequest) -> Generator[LogLine, None, bool]:
        """Read on. Returns whether all was read: the run had ended before, and nothing is new or missing."""
        self._fruitless, self._is_answered = self._fruitless + 1, False
        has_ended = run.state is RunState.ENDED
        query = {} if has_ended else {"follow": "true"}
        try:
            yield from self._request(run, position, request, query)
        except (CredentialsError, ForbiddenError) as error:
            self._reading.failed(error)
            return False
        except (UnreachableError, RefusedError, NotFoundError) as error:
            if not self._is_answered:
                self._tell(f"{error}: trying again")
            return has_ended and self._fruitless > _LAST_ATTEMPTS and not isinstance(error, UnreachableError)
        return has_ended and self._fruitless > 0 and (position.has_joined or self._fruitless > _LAST_ATTEMPTS)

    def _request(
        self, run: LauncherRun, position: LogPosition, request: LogRequest, query: Mapping[str, str]
    ) -> Iterator[LogLine]:
        """The new lines of one request that are selected."""
        position.resume()
        path = f"{self._pods}/{run.pod}/log"
        whole = {"container": run.container, "timestamps": "true", **_since(position, request), **query}
        if run.is_previous:
            whole["previous"] = "true"
        for raw in self._source.stream(path, whole, silence_seconds=_SILENCE_SECONDS):
            self._is_answered = True
            self._reading.answered()
            second = stamped_second(raw)
            if second is None:
                self._tell(f"the kubelet says: {raw.decode(errors='replace')}")
                continue
            arrival = position.take(raw, second)
            if arrival is Arrival.KNOWN:
                continue
            self._fruitless, self._said = 0, ""
            line = parse_line(raw, run.pod)
            if arrival is Arrival.AFTER_GAP:
                self._tell(f"the log was rotated while it was not read: lines before {line.time} may be missing")
            if request.selection.admits(line):
                yield line

    def _look(self) -> JobLaunchers:
        """Raises ClusterError."""
        mpijob, ending = self._seen, ""
        try:
            mpijob = self._source.get(self._mpijob)
        except NotFoundError:
            ending = "was deleted"
        if mpijob["metadata"]["uid"] != self._uid:
            return JobLaunchers(job=self._name, ended="was deleted, and another one has its name")
        self._seen = mpijob
        found = job_launchers(mpijob, self._source.list(self._pods, labelSelector=f"{LABEL_JOB_NAME}={self._name}"))
        return replace(found, ended=ending or found.ended)

    def _announce(self, done: Reading | None, reading: Reading) -> None:
        if done is None:
            self._tell(f"launcher {reading.run.pod} has started")
            return
        ended = self._launchers.find(done.run.key) or replace(done.run, exit_code=None)
        self._tell(f"launcher {done.run.pod} {ended.outcome}; going on with {reading.run.pod}")

    def _nothing(self, request: LogRequest) -> str:
        launchers = self._launchers
        if request.previous and launchers.readable:
            return f"job {self._name} has had one launcher whose log is left, {launchers.readable[-1].pod}"
        if launchers.ended:
            return f"job {self._name} {launchers.ended}, and the logs of its launchers went with their pods"
        return f"job {self._name} has printed nothing yet: {launchers.waits_for}"

    def _tell(self, sentence: str) -> None:
        if sentence != self._said:
            self._said = sentence
            self._say(sentence)


def _first_query(request: LogRequest) -> dict[str, str]:
    """One line at least, so that whoever goes on knows where. The server counts lines before any are selected."""
    if request.tail is None or not request.selection.is_all:
        return {}
    return {"tailLines": str(max(request.tail, 1))}


def _since(position: LogPosition, request: LogRequest) -> dict[str, str]:
    if position.since is not None:
        return {"sinceTime": position.since}
    return {} if request.since_seconds is None else {"sinceSeconds": str(request.since_seconds)}
