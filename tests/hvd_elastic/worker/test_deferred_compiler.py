"""A script sees the same with the compiler deferred as with the compiler loaded: each is run both ways and compared.

Real torch, imported once for each way: a script is a fork of that process, from before torch's first operation.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from hvd_elastic.mpijob.contract import ENV_COMPILER, Exit
from tests.hvd_elastic.worker.pods import DEADLINE_SECONDS, ROOT, Yard, make_yard

pytestmark = pytest.mark.process

HOST = """
import contextlib, io, json, os, sys, traceback
import torch
if sys.argv[1] == "ahead":
    import torch._dynamo
else:
    from hvd_elastic.worker.standby.deferred_compiler import DeferredCompiler
    assert DeferredCompiler().install()
outputs = {}
for name, script in json.load(sys.stdin).items():
    reader, writer = os.pipe()
    if not os.fork():
        os.dup2(writer, 1)
        try:
            exec(compile(script, "train.py", "exec"), {"__name__": "__main__"})
        except BaseException:
            traceback.print_exc(file=sys.stdout)
        sys.stdout.flush()
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as output:
        outputs[name] = output.read()
    os.wait()
json.dump(outputs, sys.stdout)
"""

BEGIN = """
import copy, pickle, sys
import torch
torch.manual_seed(3)
model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.LayerNorm(3), torch.nn.Linear(3, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
batch = torch.randn(5, 4)
def step():
    optimizer.zero_grad()
    model(batch).pow(2).mean().backward()
    optimizer.step()
"""
END = "\nprint([round(float(p.detach().double().sum()), 5) for p in model.parameters()])\n"
EAGER = {
    "training": "for _ in range(3): step()",
    "every optimizer": """
for name in ("Adadelta", "Adagrad", "Adam", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD"):
    optimizer = getattr(torch.optim, name)(model.parameters())
    step()
""",
    "the rest of a loop": """
extra = torch.nn.Linear(1, 1)
optimizer.add_param_group({"params": extra.parameters()})
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, [0.1, 0.1], total_steps=9)
hook = optimizer.register_step_post_hook(lambda *_: print("stepped"))
for part in torch.utils.data.DataLoader(batch, batch_size=2):
    with torch.autocast("cpu", torch.bfloat16):
        loss = extra(model(part)).sum()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step(lambda: loss)
    scheduler.step()
""",
    "copies and pickles": """
step()
other = pickle.loads(pickle.dumps(optimizer))
other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
print(type(other), sorted(other.state_dict()["state"][0]), copy.deepcopy(optimizer).param_groups[0]["lr"])
""",
    "an optimizer of its own": """
class Half(torch.optim.SGD):
    def step(self, closure=None):
        print("half")
        return super().step(closure)
optimizer = Half(model.parameters(), lr=0.5)
step()
""",
    "a closure that fails": """
import traceback
def closure():
    raise ValueError("of the closure")
try:
    optimizer.step(closure)
except ValueError:
    print(traceback.format_exc())
""",
    "options that are refused": "torch.optim.AdamW(model.parameters(), lr=-1.0)",
    "a group that is refused": """
import traceback
try:
    optimizer.add_param_group({"params": [3]})
except TypeError as error:
    frames = traceback.extract_tb(error.__traceback__)
    print(error, [frame.name for frame in frames if "_dynamo" not in frame.filename])
""",
    "signatures": """
import inspect
print(inspect.signature(torch.optim.AdamW.step), inspect.signature(optimizer.load_state_dict))
print(inspect.getsource(torch.optim.AdamW.step)[:40], torch.optim.Optimizer.add_param_group.__doc__[:30])
""",
    "names that are nowhere": """
print(hasattr(torch.fx, "nowhere"), hasattr(torch.optim, "__path__"), hasattr(torch.utils, "__nowhere__"))
try:
    torch.fx.nowhere
except AttributeError as error:
    print(error)
""",
    "a submodule that is imported by name": "from torch.distributed import checkpoint; print(checkpoint.__name__)",
}
"""They do without the compiler."""

COMPILING = {
    "import": (
        "",
        """
step()
import torch._dynamo
step()
modules = [each for each in sorted(sys.modules.items()) if each[0].startswith("torch.")]
print([name for name, module in modules if "__getattr__" in vars(module)])
print([type(finder).__name__ for finder in sys.meta_path if "deferred_compiler" in type(finder).__module__])
methods = (torch.optim.Optimizer.zero_grad, torch.optim.Optimizer.add_param_group)
print([method.__wrapped__.__dict__.get("__dynamo_disable") is method.__wrapped__ for method in methods])
print(sorted(torch.optim.Adam.step.__code__.co_names))
print(torch._weights_only_unpickler._get_user_allowed_globals.__module__)
""",
    ),
    "a submodule, before the first optimizer": (
        "from torch._dynamo.utils import counters\n",
        "step(); print(type(counters))",
    ),
    "an attribute of torch": (
        "",
        """
import importlib.util
print(importlib.util.find_spec("torch._dynamo.config").name)
torch._dynamo.config.cache_size_limit = 5
from torch import _dynamo
print(torch._dynamo.config.cache_size_limit, _dynamo is sys.modules["torch._dynamo"])
""",
    ),
    "compiled before the first optimizer": (
        "import torch\nprint(torch.compile(lambda x: x.sin() + 1, backend='eager')(torch.zeros(2)))\n",
        "step()\ntorch.compiler.reset()\nstep()",
    ),
    "model and step": (
        "",
        """
step()
model = torch.compile(model, backend="eager")
step()
from torch._dynamo.utils import counters
compiled = torch.compile(step, backend="eager")
compiled()
compiled()
print({kind: dict(each) for kind, each in counters.items() if kind in ("stats", "graph_break")})
""",
    ),
    "an optimizer that compiled code makes": (
        "",
        """
@torch.compile(backend="eager")
def train():
    other = torch.optim.SGD(model.parameters(), lr=0.1)
    model(batch).sum().backward()
    other.step()
    other.zero_grad()
train()
""",
    ),
    "what its import brings": (
        "",
        "print(torch.distributed.fsdp.__name__, torch.fx.experimental.symbolic_shapes.__name__)",
    ),
    "a class that its import lets torch.load read": (
        "",
        """
import io, os
reader, writer = os.pipe()
if not os.fork():
    from torch.distributed.tensor import Shard
    content = io.BytesIO()
    torch.save({"placement": Shard(0)}, content)
    os.write(writer, content.getvalue())
    os._exit(0)
os.wait()
print(torch.load(io.BytesIO(os.read(reader, 1 << 16)), weights_only=True))
""",
    ),
}
"""What comes before the first optimizer, and what comes after it. They load the compiler."""

EAGER_ENDS = "\nprint('loaded', 'torch._dynamo' in sys.modules)\n"


def printed(way: str, scripts: Mapping[str, str]) -> Mapping[str, str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-P", "-c", HOST, way]
    done = subprocess.run(
        command, input=json.dumps(scripts), env=environment, capture_output=True, text=True, check=False, timeout=280
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def test_a_script_prints_the_same_both_ways() -> None:
    """In one test: a fixture of several would run all scripts once in each process of pytest."""
    scripts = {name: BEGIN + script + EAGER_ENDS + END for name, script in EAGER.items()}
    scripts |= {name: before + BEGIN + after + END for name, (before, after) in COMPILING.items()}
    ahead, deferred = printed("ahead", scripts), printed("deferred", scripts)
    assert deferred == {name: output.replace("loaded True", "loaded False") for name, output in ahead.items()}
    assert not [name for name in COMPILING if "Error" in deferred[name]]


SCRIPT = """
import sys
import horovod.torch as hvd
import torch
before = "torch._dynamo" in sys.modules
hvd.init()
model = torch.nn.Linear(2, 1)
optimizer = hvd.DistributedOptimizer(torch.optim.AdamW(model.parameters()), named_parameters=model.named_parameters())
model(torch.ones(1, 2)).sum().backward()
optimizer.step()
import gc
print(before, "torch._dynamo" in sys.modules, gc.isenabled(), gc.get_freeze_count() > 100_000)
"""


@pytest.mark.parametrize(
    ("compiler", "expected"),
    [pytest.param(None, "False False True True", marks=pytest.mark.core), ("ahead", "True True True True")],
)
def test_a_worker_takes_its_first_step(tmp_path: Path, compiler: str | None, expected: str) -> None:
    yard = make_yard(tmp_path, real=True)
    yard.write(SCRIPT)
    with yard.pod(env={ENV_COMPILER: compiler} if compiler else {}) as pod:
        pod.ready()
        assert pod.run() == (0, f"{expected}\n")


def test_a_command_without_a_standby_defers_it_too(tmp_path: Path) -> None:
    yard = make_yard(tmp_path, real=True)
    yard.write(SCRIPT)
    with yard.pod(standby="off") as pod:
        pod.ready()
        assert pod.run(cwd=yard.folder) == (0, "False False True False\n")


def test_a_torch_that_is_not_known_gets_it_ahead(yard: Yard) -> None:
    yard.write("import sys, horovod.torch as hvd\nhvd.init()\nprint('torch._dynamo' in sys.modules)")
    with yard.pod() as pod:
        pod.ready()
        assert pod.run() == (0, "True\n")


def test_another_value_is_refused(yard: Yard) -> None:
    yard.write("")
    with yard.pod(env={ENV_COMPILER: "never"}) as pod:
        assert pod.process.wait(DEADLINE_SECONDS) == Exit.BAD_INPUT
        assert f"{ENV_COMPILER}: 'never' is not later, ahead" in pod.log_text
