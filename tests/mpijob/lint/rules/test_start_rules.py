"""What keeps a launcher from its workers, by the sources of the operator, of Horovod and of ssh."""

from typing import Any

import pytest

from hvd_elastic.mpijob import lint
from hvd_elastic.mpijob.lint.rule import ManifestPart
from tests.mpijob.lint.rules_on import HOROVODRUN, changed, findings, launcher

TRAIN = ("python", "train.py")


def worker(**fields: object) -> list[lint.Document]:
    return changed(ManifestPart.WORKER, {"args": None, **fields})


@pytest.mark.parametrize(
    "command",
    [
        [""],
        ["sleep", "infinity"],
        ["tail", "-f", "/dev/null"],
        ["sh", "-c", "sleep 365d"],
        ["bash", "-c", "while true; do sleep 60; done"],
        ["bash", "-c", "trap : TERM INT; sleep infinity & wait"],
    ],
)
def test_a_worker_that_passes_the_time_has_no_sshd(command: list[str]) -> None:
    assert len(findings("HE144", worker(command=command))) == 1


@pytest.mark.parametrize(
    "command",
    [
        None,
        ["/usr/sbin/sshd", "-De"],
        ["sh", "-c", "ssh-keygen -A; /usr/sbin/sshd; sleep 365d"],
        ["/opt/start.sh"],
        ["bash", "-c", "service ssh start && sleep infinity"],
        ["tini", "--", "/usr/sbin/sshd", "-De"],
    ],
)
def test_a_worker_that_may_run_sshd_is_left_alone(command: list[str] | None) -> None:
    assert findings("HE144", worker(command=command)) == []


def test_the_operator_of_v1_needs_no_sshd() -> None:
    documents = changed(ManifestPart.JOB, {"apiVersion": "kubeflow.org/v1"})
    job: Any = documents[-1].value
    job["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["command"] = ["sleep", "365d"]
    assert findings("HE144", documents) == []


@pytest.mark.parametrize(
    "script",
    [
        "for h in $(cut -d' ' -f1 /etc/mpi/hostfile); do\n  until ssh $h true; do sleep 3; done\ndone",
        "while read host; do until nc -z $host 22; do sleep 1; done; done < /etc/mpi/hostfile",
        "for i in $(seq 0 7); do until getent hosts $JOB-worker-$i; do sleep 1; done; done",
        "for h in $(awk '{print $1}' /etc/mpi/hostfile); do while ! (echo > /dev/tcp/${h}/22); do sleep 1; done; done",
        "until [ $(/etc/mpi/discover_hosts.sh | wc -l) -ge 8 ]; do sleep 5; done",
        'while [ "$(getent hosts w | wc -l)" -lt "$WORKERS" ]; do sleep 5; done',
        "kubectl wait --for=condition=Ready pod -l training.kubeflow.org/job-role=worker --timeout=1h",
    ],
)
def test_a_wait_for_every_host_is_found_in_launcher_and_init_container(script: str) -> None:
    run = "exec " + " ".join([*HOROVODRUN, *TRAIN])
    assert len(findings("HE142", launcher(["bash", "-c", f"{script}\n{run}"]))) == 1
    init = [{"name": "wait", "image": "example.com/train:1", "command": ["sh", "-c", script]}]
    assert len(findings("HE142", changed(ManifestPart.LAUNCHER_POD, {"spec": {"initContainers": init}}))) == 1


@pytest.mark.parametrize(
    "script",
    [
        "until getent hosts $JOB-worker-0; do sleep 1; done",
        "# for h in hostfile: until ssh $h\nsleep 5",
        "for i in $(seq 5); do cp /data/$i /scratch; done",
        "for i in $(seq 5); do mkdir /d/$i; done\nuntil getent hosts $JOB-worker-0; do sleep 1; done",
        "until [ $(/etc/mpi/discover_hosts.sh | wc -l) -ge 2 ]; do sleep 5; done",
        "while ! test -e /data/ready; do sleep 1; done",
    ],
)
def test_a_wait_for_less_than_every_host_is_none(script: str) -> None:
    run = "exec " + " ".join([*HOROVODRUN, *TRAIN])
    assert findings("HE142", launcher(["bash", "-c", f"{script}\n{run}"])) == []


def test_a_static_job_may_wait_for_every_host() -> None:
    script = "for h in $(cat /etc/mpi/hostfile); do until ssh $h true; do sleep 3; done; done; exec mpirun ./a"
    assert findings("HE142", launcher(["bash", "-c", script])) == []


@pytest.mark.parametrize(
    ("words", "messages"),
    [
        (["-np", "4", "-H", "localhost:1"], ["1 slot for 4 processes, and no worker is used"]),
        (["-np", "4", "-H", "localhost:4"], ["all processes run in the launcher's pod, and no worker is used"]),
        (["-np", "4"], ["all processes run in the launcher's pod, and no worker is used"]),
        (["-np", "4", "-H", "localhost:1,fashion-worker-0:3"], []),
        (["-np", "4", "--hostfile", "/etc/mpi/hostfile"], []),
        (["--check-build"], []),
        (["-np", "4", "--host-discovery-script", "/hosts"], []),
    ],
)
def test_static_horovodrun_needs_hosts(words: list[str], messages: list[str]) -> None:
    found = findings("HE143", launcher(["horovodrun", *words, *TRAIN]))
    assert [one.message for one in found] == messages


@pytest.mark.parametrize(
    ("command", "fixed"),
    [
        (["horovodrun -np 2 -H a:2 python t.py"], ["horovodrun", "-np", "2", "-H", "a:2", "python", "t.py"]),
        (["mpirun -np 2", "./a"], ["mpirun", "-np", "2", "./a"]),
        (["cd /code && mpirun ./a"], None),
        (["/opt/my start.sh"], None),
    ],
)
def test_a_programs_name_has_no_blanks(command: list[str], fixed: list[str] | None) -> None:
    documents = launcher(command)
    (found,) = findings("HE141", documents)
    assert findings("HE101", documents) == []  # HE141 says why nothing is read
    after, _ = lint.fix(documents, lint.select_rules(["HE141"]))
    job: Any = after[-1].value
    main = job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
    assert main["command"] == (fixed or command)
    assert bool(found.edits) == (fixed is not None)


def test_a_shells_script_has_blanks() -> None:
    assert findings("HE141", launcher(["bash", "-c", "mpirun -np 2 ./a"])) == []


@pytest.mark.parametrize(
    ("path", "context", "count"),
    [
        ("/root/.ssh", {"fsGroup": 1337, "runAsUser": 0, "runAsNonRoot": False}, 1),
        ("/home/mpiuser/.ssh", {"fsGroup": 1337, "runAsUser": 0, "runAsNonRoot": False}, 0),
        ("/root/.ssh", {"fsGroup": 1337, "runAsUser": 1000}, 0),  # HE314: this user cannot read it at all
        ("/root/.ssh", {"runAsUser": 0, "runAsNonRoot": False}, 0),
    ],
)
def test_a_group_must_not_read_roots_key(path: str, context: Any, count: int) -> None:
    of_container = {"name": "launcher", "securityContext": {"runAsUser": None, "runAsNonRoot": None}}
    of_pod = {"runAsUser": None, "fsGroup": None, **context}
    spec: dict[str, Any] = {"securityContext": of_pod, "containers": [of_container]}
    patch = {"spec": {"sshAuthMountPath": path, "mpiReplicaSpecs": {"Launcher": {"template": {"spec": spec}}}}}
    assert len(findings("HE145", changed(ManifestPart.JOB, patch))) == count


@pytest.mark.parametrize(
    ("context", "count"),
    [
        ({"runAsUser": 0, "capabilities": {"drop": ["ALL"]}}, 1),
        ({"runAsUser": 0, "capabilities": {"drop": ["all"], "add": ["SYS_CHROOT"]}}, 0),
        ({"runAsUser": 0, "capabilities": {"drop": ["NET_RAW"]}}, 0),
        ({"runAsUser": 1000, "capabilities": {"drop": ["ALL"]}}, 0),
    ],
)
def test_roots_sshd_needs_its_capabilities(context: dict[str, object], count: int) -> None:
    documents = worker(command=["/usr/sbin/sshd", "-De"], securityContext={"capabilities": None, **context})
    assert len(findings("HE146", documents)) == count


@pytest.mark.parametrize(
    ("image", "command", "count"),
    [
        ("horovod/horovod:0.28.1", None, 1),
        ("docker.io/horovod/horovod-cpu@sha256:0", ["/usr/sbin/sshd", "-De"], 1),
        ("horovod/horovod:0.28.1", ["/usr/sbin/sshd", "-De", "-o", "StrictModes no"], 0),
        ("horovod/horovod:0.28.1", ["/opt/start.sh"], 0),
        ("example.com/horovod:0.28.1", None, 0),
        ("example.com/horovod/horovod:0.28.1", None, 0),
    ],
)
def test_published_images_refuse_the_operators_key(image: str, command: list[str] | None, count: int) -> None:
    assert len(findings("HE147", worker(image=image, command=command))) == count
