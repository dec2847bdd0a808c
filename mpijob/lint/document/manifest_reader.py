"""Reads a YAML or JSON stream into documents that know where each value stands."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from hvd_elastic.mpijob.lint.document.view import Path, View
from hvd_elastic.mpijob.lint.document.yaml_composer import Composer, Node, Region, UnreadableError
from hvd_elastic.priorityclasses.problem import Problem

MAX_BYTES: Final = 32 << 20
"""Largest stream that is read, in characters: some 2,000 generated jobs."""

_SEPARATOR: Final = re.compile(r"^---(?=\s|$)", re.MULTILINE)
_DIRECTIVE: Final = re.compile(r"^%", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One document of a stream."""

    source: str
    """The file's name as the user gave it; `-` is standard input."""
    node: Node
    value: object
    """Plain dicts, lists and scalars; nothing in it is shared, whatever the aliases were."""

    def region(self, path: Path) -> Region:
        """Where `path` stands; for what is missing, the nearest thing around it. Collections are shown by their key."""
        node = self.node
        region = Region(node.region.line, node.region.column, node.region.line, node.region.column + 1)
        for key in path:
            child = _child(node, key)
            if child is None:
                break
            scalar = not isinstance(child.content, list | dict)
            region = child.region if scalar else node.keys.get(str(key), child.region)
            node = child
        return region

    def duplicates(self) -> Iterator[tuple[Path, Region]]:
        """Keys that stand twice in one mapping: the path of the mapping's key, and where the second one stands."""
        return _duplicates(self.node, ())

    @property
    def view(self) -> View:
        """The document's root."""
        return View(self.value)


def _child(node: Node, key: str | int) -> Node | None:
    content = node.content
    if isinstance(content, dict):
        return content.get(str(key))
    if isinstance(content, list) and isinstance(key, int) and key < len(content):
        return content[key]
    return None


def _duplicates(node: Node, path: Path) -> Iterator[tuple[Path, Region]]:
    for name, region in node.duplicates:
        yield (*path, name), region
    children: list[tuple[str | int, Node]] = []
    if isinstance(node.content, dict):
        children = list(node.content.items())
    elif isinstance(node.content, list):
        children = list(enumerate(node.content))
    for key, child in children:
        yield from _duplicates(child, (*path, key))


def read(text: str, source: str = "-") -> tuple[list[Document], list[Problem]]:
    """Every document of the stream that can be read, and a problem for each that cannot. Empty documents are left out.

    A broken document does not hide the others: the stream is cut at its `---` lines first, as kubectl does.
    """
    if len(text) > MAX_BYTES:
        return [], [Problem(path=source, value=len(text), what=f"more than {MAX_BYTES} characters", way_out="split it")]
    documents: list[Document] = []
    problems: list[Problem] = []
    for first_line, chunk in _chunks(text):
        try:
            nodes = Composer(first_line).compose(chunk)
            documents.extend(Document(source=source, node=node, value=plain(node)) for node in nodes)
        except UnreadableError as error:
            problems.append(_problem(source, error))
    return documents, problems


def plain(node: Node) -> object:
    """The node's value without places. Bounded by MAX_DEPTH."""
    content = node.content
    if isinstance(content, dict):
        return {key: plain(child) for key, child in content.items()}
    if isinstance(content, list):
        return [plain(child) for child in content]
    return content


def _chunks(text: str) -> Iterator[tuple[int, str]]:
    cuts = [match.start() for match in _SEPARATOR.finditer(text)]
    if _DIRECTIVE.search(text):  # a directive stands before its `---`
        cuts = []
    edges = sorted({0, *cuts, len(text)})
    line = 0
    for start, end in pairwise(edges):
        yield line, text[start:end]
        line += text.count("\n", start, end)


def _problem(source: str, error: UnreadableError) -> Problem:
    place = f"{source}:{error.line}:{error.column}"
    return Problem(path=place, value="", what=error.what, way_out=error.way_out)
