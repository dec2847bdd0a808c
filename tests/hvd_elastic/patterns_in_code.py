"""Finds every regular expression of the product in its syntax trees, those written inline too, and how each is used."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
FOLDERS: Final = ("hvd_elastic", "mpijob", "discovery", "trainer", "priorityclasses")
METHODS: Final = ("search", "match", "fullmatch", "split", "findall", "finditer", "sub", "subn")
ANY_NAME: Final = "name"
"""Stands for a value that only a running program has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPattern:
    """One regular expression and one method that is called on it."""

    where: str
    """Module and line."""
    pattern: re.Pattern[str] | re.Pattern[bytes]
    method: str

    def __str__(self) -> str:
        return f"{self.where} {self.method} {self.pattern.pattern!r}"


class UnknownValueError(Exception):
    """A value that the syntax trees do not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Module:
    name: str
    tree: ast.Module
    values: dict[str, ast.expr]
    imported: dict[str, tuple[str, str]]
    """The module and the name there, of each name that is imported from one of ours."""


@cache
def _modules() -> dict[str, _Module]:
    found = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(parts if folder == "hvd_elastic" else ("hvd_elastic", *parts))
            tree = ast.parse(path.read_text(encoding="utf-8"))
            found[name] = _Module(name=name, tree=tree, values=dict(_values(tree)), imported=dict(_imported(tree)))
    return found


def _values(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for statement in tree.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value:
            yield statement.target.id, statement.value
        elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            yield statement.targets[0].id, statement.value


def _imported(tree: ast.Module) -> Iterator[tuple[str, tuple[str, str]]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for name in node.names:
                yield name.asname or name.name, (node.module, name.name)


def patterns() -> Iterator[FoundPattern]:
    """Every pattern with every method that is called on it. Raises UnknownValueError for one that cannot be known."""
    modules = _modules()
    for module in modules.values():
        for node in ast.walk(module.tree):
            if not (isinstance(node, ast.Call) and _is_re(node.func)):
                continue
            assert isinstance(node.func, ast.Attribute)
            name = node.func.attr
            if name not in ("compile", *METHODS):
                continue
            place = {"compile": 1, "sub": 3, "subn": 3}.get(name, 2)
            given = node.args[place:] + [word.value for word in node.keywords if word.arg == "flags"]
            flags = _value(given[-1], module) if given else 0
            assert isinstance(flags, int)
            methods = _methods_on(node, module) if name == "compile" else [name]
            for text in _texts(node.args[0], module):
                where = f"{module.name}:{node.lineno}"
                for method in methods:
                    yield FoundPattern(where=where, pattern=re.compile(text, flags), method=method)


def _is_re(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "re"


def _texts(node: ast.expr, module: _Module) -> list[str] | list[bytes]:
    """The pattern; all of them where a loop goes over the keys of a mapping."""
    try:
        value = _value(node, module)
    except UnknownValueError:
        if not isinstance(node, ast.Name):
            raise
        return _keys_looped_over(node.id, module)
    assert isinstance(value, str | bytes)
    return [value]  # type: ignore[return-value]


def _keys_looped_over(name: str, module: _Module) -> list[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.comprehension | ast.For) and name in {
            inner.id for inner in ast.walk(node.target) if isinstance(inner, ast.Name)
        }:
            source = node.iter
            if isinstance(source, ast.Call) and isinstance(source.func, ast.Attribute):
                source = source.func.value
            mapping = module.values.get(source.id) if isinstance(source, ast.Name) else None
            if isinstance(mapping, ast.Dict):
                return [str(_value(key, module)) for key in mapping.keys if key]
    raise UnknownValueError(f"{module.name}: {name}")


def _methods_on(call: ast.Call, module: _Module) -> list[str]:
    """The methods called on the name that `re.compile` is assigned to, in its module and where it is imported."""
    names = {
        target.id
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is call
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    found = set()
    for other in _modules().values():
        here = (
            names
            if other is module
            else {local for local, (source, name) in other.imported.items() if source == module.name and name in names}
        )
        found |= (
            {
                node.attr
                for node in ast.walk(other.tree)
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in here
            }
            if here
            else set()
        )
    return sorted(found & set(METHODS)) or ["search", "fullmatch"]


def _value(node: ast.expr, module: _Module) -> str | bytes | int:
    match node:
        case ast.Constant(value=str() | bytes() | int() as value):
            return value
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _value(left, module) + _value(right, module)  # type: ignore[operator]
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _value(left, module) | _value(right, module)  # type: ignore[operator]
        case ast.JoinedStr(values=parts):
            return "".join(_part(part, module) for part in parts)
        case ast.Attribute(value=ast.Name(id="re"), attr=flag):
            return int(getattr(re, flag))
        case ast.Name(id=name) if name in module.values:
            return _value(module.values[name], module)
        case ast.Name(id=name) if name in module.imported and module.imported[name][0] in _modules():
            source, original = module.imported[name]
            return _value(ast.Name(id=original), _modules()[source])
    raise UnknownValueError(f"{module.name}: {ast.unparse(node)}")


def _part(node: ast.expr, module: _Module) -> str:
    """A part of an f-string. What only a running program has is a name."""
    try:
        return str(_value(node.value if isinstance(node, ast.FormattedValue) else node, module))
    except UnknownValueError:
        return ANY_NAME
