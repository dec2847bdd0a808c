"""The benchmarks, and how much each of them does for a report: some minutes at most, on a machine with two cores."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

CLUSTER: Final = "it brings up the test cluster, for ten minutes to an hour"


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One of them."""

    name: str
    """Of the module, without `benchmarks.`."""
    options: Sequence[str] = ()
    """For a report, where what it does without any would take longer."""
    left_out: str = ""
    """Why a report does without it, unless it is asked for by name; empty: it does not."""

    def command(self, *, full: bool) -> list[str]:
        """Arguments of Python."""
        return ["-m", f"benchmarks.{self.name}", *(() if full else self.options)]


def _program(name: str, options: str = "", *, left_out: str = "") -> Program:
    return Program(name=name, options=tuple(options.split()), left_out=left_out)


PROGRAMS: Final = (
    _program("same_training", "--schedules 2 --seeds 2 --epochs 4"),
    _program("simulated_traces"),
    _program("step_time"),
    _program("checkpoint_interval"),
    _program("simulate"),
    _program("launcher", "--rounds 1 --stock-rounds 1"),
    _program("launcher_decisions"),
    _program("world_size", "--sizes 3 16 --rounds 1"),
    _program("local_days", "--windows 1 --seconds 60"),
    _program("conformance", "--rounds 1"),
    _program("lending", "--seconds 60 --node-seconds 30"),
    _program("launcher_scale", "--workers 64 256 512 --stock 64 --all-lookups 0"),
    _program("discovery", "--pods 64 256 --seconds 10"),
    _program("worker_start", "--rounds 2"),
    _program("standby", "--starts 1"),
    _program("torch_worlds", "--rounds 10"),
    _program("compile_resize", "--width 64 --layers 1"),
    _program("trainer_commit", "--parameters 24 --commits 5 --steps 5"),
    _program("trainer_durable", "--tensors 16000 --mib 256"),
    _program("sharded_optimizer", "--sizes 2 --rounds 1"),
    _program("trainer_sampler", "--samples 10000000 --stock 500000"),
    _program("waiting_ranks", "--ranks 3 --rounds 1"),
    _program("rank_pace", "--rounds 3"),
    _program("gradient_dtypes", "--ranks 2 --steps 5"),
    _program("loop", "--processes 2 --pairs 5"),
    _program("checkpoint", "--parameters 50 --upload-mib 128 --repeats 3"),
    _program("staging", "--small 3000 --large 2 --large-mib 256"),
    _program("generate", "--jobs 300"),
    _program("job_list", "--runs 3"),
    _program("startup", "--rounds 7"),
    _program("watch", "--seconds 15"),
    _program("cluster", left_out=CLUSTER),
    _program("job_start", left_out=CLUSTER),
    _program("faults", left_out=CLUSTER),
    _program("recorded_days", left_out=CLUSTER),
    _program("simulation_truth", left_out="it reads what recorded_days has measured"),
    _program("bursts", left_out=CLUSTER),
    _program("operator_scale", left_out=CLUSTER),
    _program("operator_wait", left_out=CLUSTER),
)
