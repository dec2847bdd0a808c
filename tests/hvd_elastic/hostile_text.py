"""Derives, from a regular expression, the texts that would make it look at the same characters again and again.

Such a text begins with what leads to a repetition, goes on with what the repetition repeats, or with all of that again
and again (a search begins anew at each place), and ends with what does not match.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

sre: Any = import_module("re._constants")
_parser: Any = import_module("re._parser")
"""The tree of a pattern has no public form."""

_COMMON: Final = " \t\n0aA_-.!\x00"
"""One character of each kind."""
_ENDS: Final = ("", "\x00", "\n!", "x\n!")
_MOST_CHARACTERS: Final = 5
"""Of one class that are tried, one after the other and in pairs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostileText:
    """`text(n)` has about n times the characters of `text(1)`."""

    begin: str
    repeated: str
    end: str

    def text(self, times: int) -> str:
        """The text with so many repetitions."""
        return self.begin + self.repeated * times + self.end


def hostile_texts(pattern: re.Pattern[str] | re.Pattern[bytes]) -> list[HostileText]:
    """What to try on a pattern. Of bytes: to be encoded as latin-1."""
    source = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    tree = _parser.parse(source, pattern.flags & ~re.UNICODE)
    deriving = _Deriving(alphabet=_alphabet(tree))
    found: dict[HostileText, None] = {}
    for begin, repeated in [*deriving.repetitions(tree, ""), ("", deriving.shortest(tree))]:
        for pump in (repeated, begin + repeated):
            for lead in ("", begin):
                found |= dict.fromkeys(HostileText(begin=lead, repeated=pump, end=end) for end in _ENDS if pump)
    return list(found)


def _alphabet(tree: Any) -> str:
    """One character of each set of those that the pattern tells apart. First those that it takes in most places."""
    places = list({str(place): place for place in _places(tree)}.values())
    literals = (chr(value) for kind, value in _single(places) if kind is sre.LITERAL)
    found: dict[tuple[bool, ...], str] = {}
    for one in dict.fromkeys((*_COMMON, *literals)):
        found.setdefault(tuple(_matches(place, one) for place in places), one)
    return "".join(found[taken] for taken in sorted(found, key=sum, reverse=True))


def _places(tree: Any) -> Iterator[Any]:
    """The nodes that take one character."""
    for kind, value in tree:
        if kind in (sre.LITERAL, sre.NOT_LITERAL, sre.ANY, sre.IN):
            yield kind, value
        for inner in _inside(kind, value):
            yield from _places(inner)


def _single(places: Iterable[Any]) -> Iterator[Any]:
    for kind, value in places:
        yield from value if kind is sre.IN else [(kind, value)]


def _matches(place: Any, one: str) -> bool:
    kind, value = place
    if kind is sre.IN:
        return any(_takes(item, one) for item in value) != (value[0][0] is sre.NEGATE)
    matches: bool = {sre.LITERAL: ord(one) == value, sre.NOT_LITERAL: ord(one) != value, sre.ANY: one != "\n"}[kind]
    return matches


def _inside(kind: Any, value: Any) -> Sequence[Any]:
    """The trees within a node."""
    if kind in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
        return [value[2]]
    if kind is sre.SUBPATTERN:
        return [value[3]]
    if kind is sre.BRANCH:
        return list(value[1])
    if kind in (sre.ASSERT, sre.ASSERT_NOT):
        return [value[1]]
    if kind is sre.ATOMIC_GROUP:
        return [value]
    return []


@dataclass(frozen=True, slots=True, kw_only=True)
class _Deriving:
    alphabet: str

    def repetitions(self, tree: Any, begin: str) -> Iterator[tuple[str, str]]:
        """What leads to each repetition, and a text that it repeats."""
        for kind, value in tree:
            if kind in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT) and value[1] > 1:
                for one in self.samples(value[2]):
                    yield begin, one
            for inner in _inside(kind, value):
                yield from self.repetitions(inner, begin)
            begin += self.shortest([(kind, value)])

    def shortest(self, tree: Any) -> str:
        """A text that matches, with each repetition at least once."""
        text = ""
        for kind, value in tree:
            if kind in (sre.ASSERT, sre.ASSERT_NOT):
                continue
            if inner := _inside(kind, value):
                times = max(1, value[0]) if kind in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT) else 1
                text += self.shortest(inner[0]) * times
            else:
                text += "".join(self.characters(kind, value)[:1])
        return text

    def samples(self, tree: Any) -> Iterator[str]:
        """Texts that a repetition repeats: characters of a class, and pairs of them; each way of a branch."""
        (kind, value), *more = tree
        if more or _inside(kind, value):
            for branch in self._branches(tree):
                yield self.shortest(branch)
            return
        some = self.characters(kind, value)[:_MOST_CHARACTERS]
        yield from some
        yield from (one + other for one in some for other in some if one != other)

    def _branches(self, tree: Any) -> list[Any]:
        kind, value = tree[0]
        if len(tree) == 1 and kind in (sre.SUBPATTERN, sre.ATOMIC_GROUP):
            return self._branches(_inside(kind, value)[0])
        return list(value[1]) if len(tree) == 1 and kind is sre.BRANCH else [tree]

    def characters(self, kind: Any, value: Any) -> list[str]:
        """The characters of the alphabet that a node without inner ones takes."""
        if kind is sre.LITERAL:
            return [chr(value)]
        if kind not in (sre.NOT_LITERAL, sre.ANY, sre.IN):
            return []
        return [one for one in self.alphabet if _matches((kind, value), one)]


_CATEGORIES: Final[dict[Any, Callable[[str], bool]]] = {
    sre.CATEGORY_DIGIT: str.isdecimal,
    sre.CATEGORY_NOT_DIGIT: lambda one: not one.isdecimal(),
    sre.CATEGORY_SPACE: str.isspace,
    sre.CATEGORY_NOT_SPACE: lambda one: not one.isspace(),
    sre.CATEGORY_WORD: lambda one: one.isalnum() or one == "_",
    sre.CATEGORY_NOT_WORD: lambda one: not (one.isalnum() or one == "_"),
}


def _takes(item: Any, one: str) -> bool:
    kind, value = item
    if kind is sre.CATEGORY:
        return _CATEGORIES[value](one)
    low, high = value if kind is sre.RANGE else (value, value) if kind is sre.LITERAL else (1, 0)
    return bool(low <= ord(one) <= high)
