"""`torch._dynamo`, the half of a start that only `torch.compile` needs, imported when something asks for it.

An eager script asks for it twice, and neither needs it (torch 2.15; the same since 2.4):

* `torch._compile._disable_dynamo` is around methods of Optimizer, so that a compiler that runs leaves them alone. It
  keeps what it calls in the method's attribute `__dynamo_disable`, and imports the compiler to make that. Here the
  attribute is the method itself: where no compiler is loaded, none runs.
* `torch.optim.optimizer._use_grad_for_differentiable` is around each `step`. It calls `torch._dynamo.graph_break()`,
  which does nothing outside of a compiler. Here the same byte code calls `torch._C.is_grad_enabled()` in its place:
  lines, frames and closures stay as they are.

Whoever asks for the compiler in another way gets it: by an import of any kind, by an attribute of a torch package that
only the compiler's import brings (`torch.distributed.fsdp`), or by a class that only that import lets `torch.load` read
(`DTensor`). Before it is imported, everything here is undone, so it finds torch as torch has left it.
"""

import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final, NoReturn

COMPILER: Final = "torch._dynamo"

_KEPT: Final = "__dynamo_disable"
_EAGER_NAMES: Final = {COMPILER: "torch", "_dynamo": "_C", "graph_break": "is_grad_enabled"}
_STEP_NAMES: Final = {*_EAGER_NAMES, "cast", "Optimizer", "is_grad_enabled", "set_grad_enabled", "defaults"}
"""All that a known wrapper of `step` mentions. Another one is left alone."""


class DeferredCompiler:
    """The changes that let optimizers do without the compiler, until it is imported.

    It stands first on sys.meta_path, where it hears of that import and finds nothing itself.
    """

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def install(self) -> bool:
        """Defer the compiler. False, and nothing is changed, if it is loaded, or if this torch is not a known one.

        Call it when torch is imported, and before the first optimizer is made.
        """
        if COMPILER in sys.modules:
            return False
        methods, steps = _disabled_methods(), _steps()
        if not methods or not steps:
            return False
        for method in methods:
            self._set(method, _KEPT, method)
        for step in steps:
            self._set(step, "__code__", _eager(step.__code__))
        for name in [name for name, module in sys.modules.items() if _is_torch_package(name, module)]:
            self._set(sys.modules[name], "__getattr__", self._attributes(sys.modules[name]))
        self._watch_loads()
        sys.meta_path.insert(0, self)
        return True

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> None:
        """Hear what is imported (importlib.abc.MetaPathFinder)."""
        del path, target
        if name == COMPILER:
            self.restore()

    def restore(self) -> None:
        """Undo everything."""
        while self._undo:
            self._undo.pop()()
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def _set(self, owner: Any, name: str, value: object) -> None:
        had = name in vars(owner) or name == "__code__"
        before = getattr(owner, name) if had else None
        setattr(owner, name, value)
        self._undo.append(lambda: setattr(owner, name, before) if had else delattr(owner, name))

    def _attributes(self, package: ModuleType) -> Callable[[str], Any]:
        """`__getattr__` of `package`: a submodule that is not loaded may be one that the compiler's import loads."""
        own: Callable[[str], Any] | None = vars(package).get("__getattr__")

        def __getattr__(name: str) -> Any:  # noqa: N807 - shown in tracebacks
            try:
                return own(name) if own is not None else _no_attribute(package, name)
            except AttributeError:
                if not self._may_bring(package, name):
                    raise
            importlib.import_module(COMPILER)
            return getattr(package, name)

        return __getattr__

    def _may_bring(self, package: ModuleType, name: str) -> bool:
        """Whether `name` is a submodule that nobody imports at this moment, by `from package import name` neither."""
        full = f"{package.__name__}.{name}"
        is_imported = full in sys.modules or sys._getframe(2).f_code.co_name == "_handle_fromlist"
        if is_imported or name.startswith("__") or not self._undo:
            return False
        return importlib.util.find_spec(full) is not None

    def _watch_loads(self) -> None:
        """`torch.load` asks for more than its own classes only where a file has others."""
        unpickler = sys.modules.get("torch._weights_only_unpickler")
        allowed = getattr(unpickler, "_get_user_allowed_globals", None)
        if allowed is None:
            return

        def with_the_compilers() -> Any:
            importlib.import_module(COMPILER)
            return allowed()

        self._set(unpickler, allowed.__name__, with_the_compilers)


def _no_attribute(package: ModuleType, name: str) -> NoReturn:
    """What Python says of a module without `__getattr__`."""
    raise AttributeError(f"module {package.__name__!r} has no attribute {name!r}", name=name, obj=package)


def _is_torch_package(name: str, module: ModuleType | None) -> bool:
    return name.startswith("torch.") and type(module) is ModuleType and "__path__" in vars(module)


def _disabled_methods() -> list[FunctionType]:
    """The methods of Optimizer that are kept from the compiler, as they were written."""
    disable = getattr(sys.modules.get("torch._compile"), "_disable_dynamo", None)
    wrappers = {code for code in _constants(disable) if _KEPT in code.co_consts and COMPILER in code.co_names}
    optimizer = getattr(sys.modules.get("torch.optim"), "Optimizer", object)
    disabled = [each for each in vars(optimizer).values() if getattr(each, "__code__", None) in wrappers]
    methods = [each.__wrapped__ for each in disabled]
    return [method for method in methods if isinstance(method, FunctionType) and _KEPT not in vars(method)]


def _steps() -> list[FunctionType]:
    """Each `step` of torch's own optimizers."""
    optim = sys.modules.get("torch.optim")
    wrap = getattr(sys.modules.get("torch.optim.optimizer"), "_use_grad_for_differentiable", None)
    wrappers = {code for code in _constants(wrap) if set(_EAGER_NAMES) <= set(code.co_names) <= _STEP_NAMES}
    classes = [each for each in vars(optim).values() if isinstance(each, type)] if optim is not None else []
    steps = [vars(each).get("step") for each in classes]
    return [step for step in steps if isinstance(step, FunctionType) and step.__code__ in wrappers]


def _constants(function: Any) -> list[CodeType]:
    code = getattr(function, "__code__", None)
    return [each for each in code.co_consts if isinstance(each, CodeType)] if code is not None else []


def _eager(code: CodeType) -> CodeType:
    return code.replace(co_names=tuple(_EAGER_NAMES.get(name, name) for name in code.co_names))
