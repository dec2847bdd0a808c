"""The ledger's lines of large jobs, as JSON objects: a name or a word that many have in common stands there once.

A world's pods are ranges of their indexes: `{"rank0":"job-worker-3","pods":{"job-worker-":"0-41,43-2047"}}` in place of
`"workers"`. Many workers that were bound, leave or are gone together are one line of the kind `many`: a list for each
field, and once what is the same for all. Each line is read without those before it, so one that is torn costs only
itself. Anyone may have written one: it is read within limits.
"""

import os.path
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

Json = Mapping[str, Any]

MANY: Final = "many"
"""The kind of a line that stands for several of the kind `each`."""
FEW: Final = 16
"""Up to so many workers are written out: a person reads them, and so does a program of before."""
MAX_PODS: Final = 50_000
"""In one line."""
_MAX_PREFIX: Final = 253
"""Characters of a name in Kubernetes."""


def packed_world(document: Json) -> Json:
    """A change of the world with ranges of indexes, if it has more than FEW workers, of which none is there twice."""
    workers = document["workers"]
    if len(workers) <= FEW or len(set(workers)) < len(workers):
        return document
    rest = {name: value for name, value in document.items() if name != "workers"}
    indexes: dict[str, list[int]] = {}
    for name in workers:
        prefix = name.rstrip("0123456789")
        digits = name[len(prefix) :]
        if not digits.isascii() or not digits or str(int(digits)) != digits:
            return document
        indexes.setdefault(prefix, []).append(int(digits))
    return {**rest, "rank0": workers[0], "pods": {prefix: _ranges(sorted(found)) for prefix, found in indexes.items()}}


def unpacked_world(document: Json) -> Json:
    """The same with `workers`, rank 0's first and then by index. Raises ValueError, TypeError or AttributeError."""
    if "pods" not in document:
        return document
    spans = [(prefix, span) for prefix, text in document["pods"].items() for span in _spans(text)]
    if sum(map(len, (span for _, span in spans))) > MAX_PODS or any(len(prefix) > _MAX_PREFIX for prefix, _ in spans):
        raise ValueError("more pods than a job has")
    # Worlds share their names: a thousand of them with two thousand workers each would not fit into memory.
    names = [sys.intern(f"{prefix}{index}") for prefix, span in spans for index in span]
    first = document["rank0"]
    return {**document, "workers": (first, *(name for name in names if name != first))}


def _ranges(indexes: Sequence[int]) -> str:
    """`0-41,43` of sorted numbers."""
    runs = (list(run) for _, run in groupby(enumerate(indexes), key=lambda each: each[1] - each[0]))
    ends = ((run[0][1], run[-1][1]) for run in runs)
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ends)


def _spans(text: str) -> Iterator[range]:
    for part in text.split(","):
        first, _, last = part.partition("-")
        yield range(int(first), int(last or first) + 1)


def packed_run(documents: Sequence[Json]) -> Json:
    """Lines of one kind, with the same fields each, as one."""
    kind, *names = documents[0]
    columns = {name: [document[name] for document in documents] for name in names}
    same = {
        name: column[0]
        for name, column in columns.items()
        if name != "uid" and all(each == column[0] for each in column)
    }
    each = {name: _without_prefix(column) for name, column in columns.items() if name not in same}
    return {"kind": MANY, "each": documents[0][kind], "same": same, "columns": each}


def _without_prefix(column: Sequence[Any]) -> Sequence[Any]:
    """A column of texts as their common beginning and a list of the rest."""
    if not all(isinstance(each, str) for each in column):
        return column
    prefix = os.path.commonprefix(column)[:_MAX_PREFIX]  # noqa: RUF071 - of words, not of paths
    return [prefix, [each[len(prefix) :] for each in column]]


def unpacked_run(document: Json) -> Iterator[Json]:
    """The lines that it stands for. Raises ValueError, KeyError, TypeError or AttributeError."""
    columns = {name: _with_prefix(column) for name, column in document["columns"].items()}
    lengths = {len(column) for column in columns.values()}
    if len(lengths) != 1 or max(lengths) > MAX_PODS:
        raise ValueError("columns of one length are wanted")
    for values in zip(*columns.values(), strict=True):
        yield {"kind": document["each"], **document["same"], **dict(zip(columns, values, strict=True))}


def _with_prefix(column: Sequence[Any]) -> Sequence[Any]:
    if len(column) == 2 and isinstance(column[0], str) and isinstance(column[1], list):
        if len(column[0]) > _MAX_PREFIX:
            raise ValueError("a longer name than Kubernetes has")
        return [column[0] + each for each in column[1]]
    return column


def packed(documents: Iterable[Json], *, kinds: frozenset[str]) -> Iterator[Json]:
    """Lines in their order: each run of more than FEW of one of these kinds, with the same fields, as one."""
    for (kind, *_), run in groupby(documents, key=lambda document: (document["kind"], *document)):
        lines = list(run)
        if kind in kinds and len(lines) > FEW:
            yield from (packed_run(lines[at : at + MAX_PODS]) for at in range(0, len(lines), MAX_PODS))
        else:
            yield from lines
