"""Small days and jobs for tests: some by hand, some drawn by hypothesis."""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import strategies as st

from hvd_elastic.decide.simulate.day import Day, InferencePod, NodeLife
from hvd_elastic.decide.simulate.workload import SimulatedJob, Stalls
from hvd_elastic.policy.job_demand import Speeds

STALLS = Stalls(
    pod_start=5.0,
    first_step=1.0,
    grow=0.5,
    shrink=0.25,
    death=0.4,
    node_lost=10.0,
    node_replaced=100.0,
    gpu_free=0.75,
    bind=1.0,
    restart=2.0,
)


def day(*, nodes: Sequence[int | NodeLife] = (), pods: tuple[InferencePod, ...] = (), seconds: float = 1000.0) -> Day:
    """Numbers stand for nodes of so many GPUs that are there all day."""
    lives = tuple(
        node if isinstance(node, NodeLife) else NodeLife(name=f"node-{number}", gpus=node)
        for number, node in enumerate(nodes)
    )
    return Day(source="by hand", seconds=seconds, nodes=lives, pods=pods)


def serving(created: float, seconds: float = float("inf"), *, gpus: int = 1) -> InferencePod:
    return InferencePod(name=f"serving-{created:g}", gpus=gpus, created=created, seconds=seconds)


def job(name: str = "job", /, **fields: object) -> SimulatedJob:
    """Scales linearly, 10 samples a second and worker."""
    known: dict[str, object] = {"min": 1, "start": 1, "max": 4, "samples_per_step": 10, **fields}
    speeds = Speeds(tuple(10.0 * workers for workers in range(int(str(known["max"])) + 1)))
    return SimulatedJob(name=name, **{"speeds": speeds, **known})  # type: ignore[arg-type]


_seconds = st.integers(0, 4000).map(lambda quarter: quarter / 4)


@st.composite
def node_lives(draw: st.DrawFn) -> NodeLife:
    since = draw(st.sampled_from([0.0, 0.0, 0.0, 200.0]) | _seconds)
    until = draw(st.just(float("inf")) | st.integers(1, 4000).map(lambda quarter: since + quarter / 4))
    return NodeLife(
        name="node",
        gpus=draw(st.sampled_from([1, 2, 4])),
        since=since,
        until=until,
        notice_seconds=draw(st.sampled_from([0.0, 0.1, 20.0, 120.0])),
        slow_since=draw(st.just(float("inf")) | _seconds),
        slow_times=draw(st.sampled_from([1.2, 3.0])),
    )


@st.composite
def days(draw: st.DrawFn, *, pod_gpus: tuple[int, ...] = (1, 2), lasting: bool = False) -> Day:
    """Of a thousand seconds, with a few nodes; `lasting`: no node comes or goes."""
    lives = st.integers(1, 4).map(lambda gpus: NodeLife(name="node", gpus=gpus)) if lasting else node_lives()
    pods = st.builds(
        InferencePod,
        name=st.just("serving"),
        gpus=st.sampled_from(pod_gpus),
        created=_seconds,
        seconds=st.integers(1, 2000).map(float) | st.just(float("inf")),
    )
    return Day(
        source="drawn",
        seconds=1000.0,
        nodes=tuple(sorted(draw(st.lists(lives, min_size=1, max_size=6)), key=lambda node: node.since)),
        pods=tuple(sorted(draw(st.lists(pods, max_size=12)), key=lambda pod: pod.created)),
    )


@st.composite
def jobs(draw: st.DrawFn, name: str = "job", *, gpus: tuple[int, ...] = (1, 2)) -> SimulatedJob:
    least = draw(st.integers(1, 3))
    most = least + draw(st.integers(0, 4))
    gains = draw(st.lists(st.floats(0.1, 1.0), min_size=most, max_size=most))
    speeds = [0.0]
    for gain in sorted(gains, reverse=True):
        speeds.append(speeds[-1] + 10 * gain)
    return SimulatedJob(
        name=name,
        begins=draw(st.sampled_from([0.0, 0.0, 30.5]) | _seconds),
        min=least,
        start=draw(st.integers(least, most)),
        max=most,
        gpus=draw(st.sampled_from(gpus)),
        speeds=Speeds(tuple(speeds)),
        samples_per_step=10,
        samples=draw(st.just(float("inf")) | st.integers(1, 5000).map(float)),
        grace_seconds=draw(st.sampled_from([0.5, 5.0, 30.0])),
        checkpoint_every_seconds=draw(st.sampled_from([None, 7.0, 60.0])),
        checkpoint_seconds=draw(st.sampled_from([0.0, 0.5, 9.0])),
        replaces_slow=draw(st.booleans()),
    )


@st.composite
def several_jobs(draw: st.DrawFn) -> tuple[SimulatedJob, ...]:
    """Some of them train with some numbers of workers alone."""
    names = draw(st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3, unique=True))
    made = [draw(jobs(name)) for name in names]
    return tuple(draw(st.just(one) | _only_some(one)) for one in made)


@st.composite
def _only_some(draw: st.DrawFn, job: SimulatedJob) -> SimulatedJob:
    ends = {job.min, job.start, job.max}
    return replace(job, sizes=tuple(ends | draw(st.sets(st.integers(job.min, job.max)))))
