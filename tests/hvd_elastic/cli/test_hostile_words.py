"""No verb lets a stranger's words steer the terminal. Verbs are found from the command tree: a new one is in here."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml

from hvd_elastic.cli import cli
from hvd_elastic.client.report.scaling_note import ScalingNote
from hvd_elastic.discovery.ledger.entries import (
    Departure,
    LauncherEnded,
    RanksStalled,
    WorkerLeaving,
    WorkerProcessLost,
)
from hvd_elastic.mpijob.contract import ANNOTATION_AUTOSCALER, ANNOTATION_SPEC
from testbed.kube_api import EVENTS, JOBS, PODS, Request, Status
from testbed.terminal import HOSTILE, steering
from tests.hvd_elastic.cli.entry_point import Ran, Tool, tool
from tests.hvd_elastic.client.logs.launchers import ContainerLog
from tests.hvd_elastic.client.operations.jobs_cluster import DESCRIPTION, MAPS
from tests.hvd_elastic.client.report.objects import (
    ALL_JOBS,
    COLLECTIONS,
    LEDGER,
    condition,
    event,
    ledger_map,
    live,
    mpijob,
    pod,
    unschedulable,
)
from tests.hvd_elastic.client.sweep.sweeps import SweepCluster

Verb = tuple[str, ...]
LINE = HOSTILE.replace("\n", "")
"""A line of a log, as a program may print it."""


def _verbs(command: click.Command, context: click.Context, words: Verb = ()) -> Iterator[tuple[Verb, click.Command]]:
    if not isinstance(command, click.Group):
        yield words, command
        return
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None
        yield from _verbs(inner, click.Context(inner, parent=context), (*words, name))


VERBS = dict(_verbs(cli, click.Context(cli)))
OF_PERSONS = {("horovodrun",), ("launch",), ("stage-copier",), ("worker",)}
"""Their arguments are the person's own command, which is run."""
NAMES_NOTHING = {("platform-kit",)}
"""Writes the folder that it is told."""
IN_A_CLUSTER = [verb for verb, command in VERBS.items() if any("--context" in one.opts for one in command.params)]


@pytest.fixture
def hvd(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Tool:
    monkeypatch.chdir(tmp_path)
    return tool(capsys, monkeypatch)


def is_clean(ran: Ran) -> bool:
    """Nothing steers, and the stranger's words were there to be cleaned."""
    said = ran.out + ran.err
    assert "owned" in said, said
    assert not steering(said), said
    return True


def forged(ran: Ran) -> list[str]:
    """Lines that the stranger began."""
    return [line for line in (ran.out + ran.err).split("\n") if line.lstrip().startswith("FORGED")]


@pytest.mark.parametrize("verb", sorted(VERBS.keys() - {("horovodrun",), ("worker",)}), ids=" ".join)
def test_words_that_no_verb_knows_are_quoted_harmlessly(verb: Verb, hvd: Tool) -> None:
    assert is_clean(hvd(*verb, f"--{HOSTILE}"))


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SweepCluster]:
    """A cluster in which a stranger has written whatever he may: annotations, a ledger, messages, names, a log."""
    api, now = SweepCluster(), time.time()
    for path in COLLECTIONS:
        api.objects.setdefault(path, {})
    monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig(tmp_path / "kubeconfig")))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    status = live(
        unix=now, since=now - 600, samples=HOSTILE, stall=HOSTILE, stall_since=now - 99, save_error=HOSTILE,
        rejected=HOSTILE, metrics={HOSTILE: 1.0},
    )  # fmt: skip
    train = mpijob(status=status)
    note = ScalingNote(unix=now, before=1, workers=2, reason=HOSTILE)
    train["metadata"]["annotations"][ANNOTATION_AUTOSCALER] = note.to_json()
    ended = mpijob("ended", conditions=[condition("Failed", message=HOSTILE)], ended=now)
    foreign = mpijob("other", status=status)
    foreign["metadata"] |= {"name": HOSTILE, "namespace": HOSTILE}
    broken = mpijob("broken")
    broken["metadata"]["annotations"][ANNOTATION_SPEC] = json.dumps({"name": "broken", HOSTILE: 1})
    for job in (train, ended, foreign, broken):
        api.put(JOBS, job)
        api.put(ALL_JOBS, job)
    launcher = pod("train-launcher-a1b2c", role="launcher", containers=[{"name": "launcher", "state": {"running": {}}}])
    launcher["spec"]["containers"] = [{"name": "launcher"}]
    for made in (launcher, pod("train-worker-1", node=HOSTILE), unschedulable("train-worker-2", HOSTILE)):
        api.put(PODS, made)
    entries = (
        *LEDGER,
        WorkerProcessLost(unix=now - 300, pod="train-worker-0", uid="uid-train-worker-0", detail=HOSTILE),
        LauncherEnded(unix=now - 200, pod="train-launcher-a", uid="l", exit_code=1, reason=HOSTILE),
        WorkerLeaving(unix=now - 99, pod="w", uid="w", why=Departure.PREEMPTED, by=HOSTILE, detail=HOSTILE),
        RanksStalled(unix=now - 50, words=HOSTILE),
    )
    for name in ("train", "ended"):
        ledger = ledger_map(entries)
        ledger["metadata"]["name"] = f"{name}-ledger"
        api.put(MAPS, ledger)
    api.put(EVENTS, event("train-worker-0", "Evicted", HOSTILE, unix=now - 10))
    log = ContainerLog(api, "train-launcher-a1b2c")
    log.write(0.1, f"[0]<stdout>:{LINE}")
    log.close()
    yield api
    api.stop()


SHOWN: dict[Verb, tuple[str, ...]] = {
    ("list",): ("", "-A", "-o json", "-A -o yaml", "-A -o name"),
    ("status",): ("train", "train -o wide", "train -o json", "train -o yaml", "ended"),
    ("watch",): ("ended",),
    ("events",): ("train", "train -o json", "ended"),
    ("cost",): ("-A", "-A -o json"),
    ("logs",): ("train", "train --timestamps", "train -o json"),
    ("profile",): ("broken",),
    ("scale",): ("broken 2",),
    ("tensorboard",): ("broken",),
}
"""Verbs that show a stranger's words, and how each is called."""


@pytest.mark.parametrize(
    ("verb", "words"), [(verb, words) for verb, calls in SHOWN.items() for words in calls], ids=str
)
def test_what_strangers_wrote_into_a_cluster_is_shown_harmlessly(
    verb: Verb, words: str, served: SweepCluster, hvd: Tool
) -> None:
    ran = hvd(*verb, *words.split())
    assert is_clean(ran)
    assert not forged(ran)


def _call(verb: Verb, command: click.Command, *, name: str, file: str) -> list[str]:
    """The verb with all that it requires, and every argument."""
    words = [*verb]
    for one in command.params:
        if isinstance(one, click.Argument):
            words.append({"file": file, "files": file, "workers": "2"}.get(one.name or "", name))
        elif one.required:
            words += [one.opts[0], one.type.choices[0] if isinstance(one.type, click.Choice) else name]
    return words


IMPORTS_TORCH = {("checkpoints", "import")}
"""Before it looks for its file, and these tests are for machines without torch, too."""


@pytest.mark.parametrize("verb", sorted(VERBS.keys() - OF_PERSONS - NAMES_NOTHING - IMPORTS_TORCH), ids=" ".join)
def test_a_thing_that_is_not_there_is_named_harmlessly(verb: Verb, served: SweepCluster, hvd: Tool) -> None:
    words = _call(verb, VERBS[verb], name=HOSTILE, file=HOSTILE)
    if HOSTILE in words:
        assert is_clean(hvd(*words))
        assert not served.written()


ENOUGH: dict[Verb, str] = {
    ("autoscale",): "--once",
    ("stage",): "--stage s3://bucket/prefix --data claim",
    ("sweep", "submit"): "--grid lr=1",
}
"""What verbs lack to ask the cluster."""


@pytest.mark.parametrize("verb", IN_A_CLUSTER, ids=" ".join)
def test_a_refusal_is_told_harmlessly(verb: Verb, served: SweepCluster, hvd: Tool) -> None:
    def refuse(_request: Request) -> None:
        raise Status(422, message=HOSTILE)

    served.fault = refuse
    Path("job.yaml").write_text(DESCRIPTION)
    words = _call(verb, VERBS[verb], name="train", file="job.yaml")
    ran = hvd(*words, *ENOUGH.get(verb, "").split())
    assert is_clean(ran)
    assert not forged(ran)


FILES = {
    ("lint", "esc.yaml"): f"name: x\nimage: a/b:1\ncommand: [python, t.py]\n{json.dumps(HOSTILE)}: 1\n",
    ("generate", "esc.yaml"): f"name: x\nimage: a/b:1\ncommand: [python, {json.dumps(HOSTILE)}]\n",
    ("generate", "wrong.yaml"): f"name: x\nimage: {json.dumps(HOSTILE)}\n{json.dumps(HOSTILE)}: 1\n",
    ("simulate", "wrong.yaml"): f"name: x\n{json.dumps(HOSTILE)}: 1\n",
    ("run", "wrong.yaml"): f"name: x\n{json.dumps(HOSTILE)}: 1\n",
    ("lint", "job.json"): json.dumps({
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {
            "name": HOSTILE,
            "annotations": {"lint.hvd-elastic.dev/HE101": HOSTILE, "lint.hvd-elastic.dev/static": HOSTILE},
        },
        "spec": {
            HOSTILE: 1,
            "mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "template": {"spec": {"containers": [
                    {"name": "l", "image": "a", "command": ["horovodrun", f"--{HOSTILE}", "python", "t.py"]}
                ]}}},
                "Worker": {"replicas": 2, "template": {"spec": {"containers": [{"name": HOSTILE, "image": "a"}]}}},
            },
        },
    }),
}  # fmt: skip


@pytest.mark.parametrize(("call", "text"), FILES.items(), ids=str)
def test_what_a_file_holds_is_quoted_harmlessly(call: tuple[str, str], text: str, hvd: Tool) -> None:
    Path(call[1]).write_text(text)
    ran = hvd(*call)
    assert is_clean(ran)
    assert not forged(ran)


def test_manifests_have_what_was_written(hvd: Tool) -> None:
    Path("esc.yaml").write_text(FILES["generate", "esc.yaml"])
    manifests = [*yaml.safe_load_all(hvd("generate", "esc.yaml").out)]
    assert HOSTILE in str(manifests[-1]["spec"]) or json.dumps(HOSTILE)[1:-1] in json.dumps(manifests[-1]["spec"])
    assert manifests == json.loads(hvd("generate", "esc.yaml", "-o", "json").out)["items"]


def test_an_error_that_nobody_expected_is_told_harmlessly(hvd: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError(HOSTILE)

    monkeypatch.setattr(VERBS["schema",], "callback", fail)
    ran = hvd("schema")
    assert is_clean(ran)
    assert (ran.code, ran.err.splitlines()[0]) == (1, "Traceback (most recent call last):")


def test_a_program_and_whoever_asks_for_it_get_a_log_as_it_was_printed(served: SweepCluster, hvd: Tool) -> None:
    assert json.loads(hvd("logs", "train", "-o", "json").out)["text"] == LINE
    assert hvd("logs", "train", "--raw").out == f"[0] {LINE}\n"
    assert hvd("logs", "train", "--raw", "-o", "json").code == 2
