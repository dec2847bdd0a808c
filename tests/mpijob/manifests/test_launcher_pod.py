import subprocess
import time
from pathlib import Path

import pytest

from hvd_elastic.mpijob import contract
from hvd_elastic.mpijob.description.job_spec import LauncherKind
from hvd_elastic.mpijob.description.target import Target
from hvd_elastic.mpijob.manifests import launcher_pod, mpijob_v1
from tests.mpijob.jobs import job, one, pods


def flag(command: list[str], name: str, count: int = 1) -> list[str]:
    at = command.index(name)
    return command[at + 1 : at + 1 + count]


def test_the_launcher_waits_for_its_training_before_its_signal(tmp_path: Path) -> None:
    hook = launcher_pod.container(job())["lifecycle"]["preStop"]["exec"]["command"]
    with subprocess.Popen([word.replace(contract.RUN_DIR, str(tmp_path)) for word in hook]) as process:
        while not (tmp_path / contract.DRAIN_FILE).exists():
            assert process.poll() is None
            time.sleep(0.01)
        (tmp_path / contract.DRAINED_FILE).touch()
        assert process.wait(60) == 0


def test_flags_count_processes_where_the_description_counts_workers() -> None:
    spec = job(workers="2:3:8", workers__gpus=4, reset_limit=7, cooldown=[3, 9], elastic_timeout="2m")
    command = launcher_pod.command(spec)
    assert command[:2] == ["hvd-elastic", "horovodrun"]
    assert [flag(command, name) for name in ("-np", "--min-np", "--max-np", "--slots-per-host")] == [
        ["12"],
        ["8"],
        ["32"],
        ["4"],
    ]
    assert flag(command, "--blacklist-cooldown-range", 2) == ["3", "9"]
    assert flag(command, "--elastic-timeout") == ["120"]
    assert flag(command, "--reset-limit") == ["7"]
    assert flag(command, "--host-discovery-script") == ["/run/hvd-elastic/discover-hosts"]
    assert flag(command, "--network-interface") == ["eth0"]
    assert command[-3:] == ["/run/hvd-elastic/adopt", "python", "train.py"]


def test_both_launchers_take_the_same_flags_and_ours_serves_metrics_where_the_monitor_looks() -> None:
    stock, ours = (launcher_pod.command(job(launcher=kind, elastic_timeout=60)) for kind in LauncherKind)
    assert ours == ["hvd-elastic", "launch", "--metrics-port", "9401", *stock[2:]]
    (port,) = launcher_pod.container(job(launcher="launch"))["ports"]
    assert (port["name"], port["containerPort"]) == ("metrics-launch", 9401)


def test_allowed_sizes_are_given_to_our_launcher_and_cut_by_the_sidecar_under_horovodrun() -> None:
    spec = {"workers__sizes": [1, 2, 4], "workers__slots": 2}
    stock, ours = (job(launcher=kind, **spec) for kind in LauncherKind)
    assert flag(launcher_pod.command(ours), "--sizes") == ["2,4,8"]
    assert "--sizes" not in launcher_pod.command(stock), "horovodrun has no such flag"
    assert flag(launcher_pod.sidecar(stock, mounts=[])["command"], "--sizes") == ["1,2,4"]
    assert "--sizes" not in launcher_pod.sidecar(ours, mounts=[])["command"], "the launcher has surplus workers wait"


def test_a_job_waits_for_workers_as_long_as_it_takes() -> None:
    """Horovodrun has a limit of 600 s of its own, and no word for none."""
    stock, ours = (launcher_pod.command(job(launcher=kind)) for kind in LauncherKind)
    assert int(*flag(stock, "--elastic-timeout")) >= 365 * 24 * 3600
    assert "--elastic-timeout" not in ours


def test_the_launcher_is_not_kept_until_its_sidecar_answers() -> None:
    """A startup probe of the sidecar would: the launcher's imports would begin seconds later."""
    sidecar = launcher_pod.sidecar(job(), mounts=[])
    assert "startupProbe" not in sidecar
    assert sidecar["livenessProbe"]["initialDelaySeconds"] >= 30, "it may start slowly"


def test_discovery_is_a_native_sidecar_that_alone_holds_the_token() -> None:
    pod, _ = pods(job())
    (sidecar,) = pod["initContainers"]
    assert sidecar["restartPolicy"] == "Always"
    assert sidecar["command"] == ["hvd-elastic", "discovery-sidecar", "--offer-again", "--no-nodes"]
    assert sidecar["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": contract.DISCOVERY_METRICS_PORT}
    assert sidecar["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": contract.DISCOVERY_METRICS_PORT}
    assert sidecar["livenessProbe"]["periodSeconds"] * sidecar["livenessProbe"]["failureThreshold"] >= 30
    assert all("livenessProbe" not in pod["containers"][0] for pod in pods(job()))
    assert pod["automountServiceAccountToken"] is False
    holders = [
        container["name"]
        for container in (sidecar, *pod["containers"])
        if any("serviceaccount" in mount["mountPath"] for mount in container["volumeMounts"])
    ]
    assert holders == ["discovery"]
    shared = {mount["name"] for mount in sidecar["volumeMounts"]} & {
        mount["name"] for mount in pod["containers"][0]["volumeMounts"] if mount["mountPath"] == contract.RUN_DIR
    }
    assert shared == {"run"}


def test_the_job_starts_without_waiting_for_all_and_guarantees_the_least() -> None:
    spec = one(job(workers="2:6"), "MPIJob")["spec"]
    assert spec["launcherCreationPolicy"] == "AtStartup"
    assert spec["mpiReplicaSpecs"]["Worker"]["replicas"] == 6
    assert spec["runPolicy"]["schedulingPolicy"] == {"minAvailable": 3, "priorityClass": "preemptible-pc"}
    assert "--max-np" in spec["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]["command"]


def test_the_gloo_time_out_is_set_on_purpose() -> None:
    def seconds(**keys: object) -> str:
        environment = pods(job(**keys))[0]["containers"][0]["env"]
        return next(str(item["value"]) for item in environment if item["name"] == "HOROVOD_GLOO_TIMEOUT_SECONDS")

    assert seconds() == "30"
    assert seconds(launcher="launch") == "10"
    assert seconds(workers="1:50") == "240"
    assert seconds(workers="1:50", gloo_timeout=45) == "45"


def test_secrets_reach_workers_only() -> None:
    launching, worker = pods(job(secrets=["s3-keys"]))
    assert worker["containers"][0]["envFrom"] == [{"secretRef": {"name": "s3-keys"}}]
    assert "s3-keys" not in str(launching)


def test_legacy_reaches_workers_by_kubectl() -> None:
    spec = job(workers__gpus=1)
    launching, worker = pods(spec, Target.MPIJOB_V1)
    assert worker["containers"][0]["command"][:4] == ["hvd-elastic", "worker", "--no-sshd", "--"]
    assert "serviceAccountName" not in launching
    assert launching["initContainers"][0]["command"][2:4] == ["--api-version", "v1"]
    subject = one(spec, "RoleBinding", Target.MPIJOB_V1)["subjects"][0]
    assert subject["name"] == "fashion-launcher"
    mount = launching["containers"][0]["volumeMounts"][-1]
    assert (mount["mountPath"], mount["subPath"]) == ("/usr/local/bin/ssh", "ssh")
    # With the variable Horovod bypasses the ssh script, and gives kubectl an address instead of a pod's name.
    assert launching["containers"][0]["command"][:5] == [
        *("env", "-u", "OMPI_MCA_plm_rsh_agent"),
        *("hvd-elastic", "horovodrun"),
    ]


def test_the_small_ssh_finds_the_pod_and_hands_the_command_on(tmp_path: Path) -> None:
    kubexec = tmp_path / "kubexec.sh"
    kubexec.write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
    kubexec.chmod(0o755)
    (tmp_path / contract.SNAPSHOT_FILE).write_text("host 10.0.0.7 1 uid-1 fashion-worker-3\nend 1 1 5 5 ok\n")
    shim = tmp_path / "ssh"
    shim.write_text(
        mpijob_v1.SHIM.replace("/etc/mpi/kubexec.sh", str(kubexec)).replace(contract.RUN_DIR, str(tmp_path))
    )
    arguments = ["-o", "StrictHostKeyChecking=no", "-n", "10.0.0.7", "-p", "2222", "cd /w && env A='b c' python x"]
    done = subprocess.run(["sh", str(shim), *arguments], capture_output=True, text=True, check=True, timeout=20)
    assert done.stdout == "fashion-worker-3|cd /w && env A='b c' python x|"


def test_the_sidecar_takes_what_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own command line reads the arguments and the environment of both kinds of jobs."""
    from hvd_elastic.cli.pods.discovery_sidecar import command

    for target in (Target.MPIJOB, Target.MPIJOB_V1):
        pod, _ = pods(job(workers="1:2:3", workers__gpus=2, namespace="team", read_nodes=True), target)
        (sidecar,) = pod["initContainers"]
        for item in sidecar["env"]:
            monkeypatch.setenv(item["name"], item.get("value", "a-uid"))
        context = command.make_context("discovery-sidecar", sidecar["command"][2:])
        found = context.params
        assert (found["job"], found["namespace"]) == ("fashion", "team")
        assert (found["min_workers"], found["max_workers"], found["slots"]) == (1, 3, 2)
        assert found["nodes"] is True
        assert found["api_version"] == ("v2beta1" if target is Target.MPIJOB else "v1")
        assert str(found["run_dir"]) == contract.RUN_DIR
        assert found["pod_uid"] == "a-uid"
        account = "/api/v1/namespaces/team/serviceaccounts/fashion-discovery"
        assert (account in found["owned"]) == (target is Target.MPIJOB)
        monkeypatch.delenv(contract.ENV_OWNED, raising=False)


def test_the_launchers_take_what_they_are_given() -> None:
    """`hvd-elastic launch` reads the flags that the generator writes."""
    from hvd_elastic.cli.this_machine.launch import command

    words = launcher_pod.command(job(launcher="launch", workers="1:2:4", workers__sizes=[1, 2, 4], reset_limit=5))
    context = command.make_context("launch", words[2:])
    assert context.params["sizes"] == (1, 2, 4)


def test_horovodrun_takes_what_it_is_given() -> None:
    launch = pytest.importorskip("horovod.runner.launch")
    words = launcher_pod.command(job(workers="1:2:3", reset_limit=5, workers__slots=2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", words[1:])
        flags = launch.parse_args()
    assert (flags.num_proc, flags.min_num_proc, flags.max_num_proc, flags.slots) == (4, 2, 6, 2)
    assert flags.cooldown_range == [2, 60]
    assert flags.reset_limit == 5
    assert flags.elastic_timeout == launcher_pod.HOROVODRUN_ELASTIC_TIMEOUT_SECONDS
    assert flags.nics == {"eth0"}
    assert flags.command[-3:] == ["/run/hvd-elastic/adopt", "python", "train.py"]


def test_launcher_and_workers_know_the_engine() -> None:
    def environments(**keys: object) -> list[dict[str, str]]:
        containers = [pod["containers"][0] for pod in pods(job(launcher="launch", **keys))]
        return [{item["name"]: item.get("value") for item in container["env"]} for container in containers]

    for environment in environments(engine="torch"):
        assert environment["HVD_ELASTIC_ENGINE"] == "torch"
        assert not [name for name in environment if name.startswith("HOROVOD_")]
    for environment in environments():  # a trainer of an older release knows no such variable
        assert "HVD_ELASTIC_ENGINE" not in environment
