"""HE2xx: where the launcher gets its list of hosts, and whether the list is right."""

import ipaddress
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from hvd_elastic.mpijob.lint.document.manifest_edit import SetValue
from hvd_elastic.mpijob.lint.document.manifest_view import ManifestView
from hvd_elastic.mpijob.lint.job.discovery_script import DiscoveryScript, ScriptOrigin, discovery_script
from hvd_elastic.mpijob.lint.job.linted_job import LintedJob, runs_hvd_elastic
from hvd_elastic.mpijob.lint.rule import ManifestPart, Severity, Violation, rule, violation
from hvd_elastic.system.plain_words import count_words

_SWALLOWED: Final = re.compile(r"\|\|\s*(true|:|exit\s+0|echo)|^\s*exit\s+0\s*$")
_HARD_LIMIT: Final = re.compile(r"\btimeout\b|--request-timeout|--max-time|^(?>.*?\bcurl\b).*\s-m\s")
_REQUEST: Final = re.compile("kubectl|curl|wget")
_READINESS: Final = re.compile(r"deletionTimestamp|\bReady\b|\bready\b|DisruptionTarget")

_CONFIG_MAP = """
spec:
  volumes: [{{name: scripts, configMap: {{name: scripts, defaultMode: 0555}}}}]
  containers:
  - name: launcher
    command: [horovodrun, -np, "2", --slots-per-host, "1", --host-discovery-script, /scripts/hosts.sh, python, train.py]
    volumeMounts: [{{name: scripts, mountPath: /scripts}}]
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: scripts}}
data:
  hosts.sh: |
{lines}
"""


def _example(*lines: str) -> str:
    return _CONFIG_MAP.format(lines="\n".join(f"    {line}" for line in ("#!/bin/sh", *lines)))


_GOOD_SCRIPT: Final = _example(
    "set -eu",
    'timeout 5 python3 /opt/hosts.py --only-ready --not-terminating --selector "training.kubeflow.org/job-name=j"',
)


def _on_script(script: DiscoveryScript, message: str) -> Violation:
    return Violation(path=script.path, value=script.file, message=message)


@rule(
    "HE201",
    "operator-discovery-script",
    Severity.ERROR,
    why="The operator's script prints every pod in phase Running, including pods that are terminating or not Ready. "
    "It reaches the launcher as a mounted ConfigMap, which the kubelet syncs about once a minute: a removal was seen "
    "after 43 s or not at all, and at the start the list was empty for 90 s (measured). Survivors are sent to hosts "
    "that are gone, the failed hosts are blacklisted, and the job never grows back.",
    fix="Run the discovery sidecar (`hvd-elastic discovery-sidecar`, an init container with `restartPolicy: Always`), "
    "and name the script that it writes: /run/hvd-elastic/discover-hosts.",
    part=ManifestPart.LAUNCHER,
    bad="""
command: [horovodrun, -np, "2", --slots-per-host, "1", --host-discovery-script, /etc/mpi/discover_hosts.sh,
  python, t.py]
""",
    good="""
command: [horovodrun, -np, "2", --slots-per-host, "1", --host-discovery-script,
  /run/hvd-elastic/discover-hosts, python, t.py]
""",
)
def operator_discovery_script(job: LintedJob) -> Iterator[Violation]:
    """Finds jobs that get their hosts from the operator's /etc/mpi/discover_hosts.sh."""
    script = discovery_script(job)
    if script and script.origin is ScriptOrigin.OPERATOR:
        yield _on_script(
            script, "lists pods that are terminating or not Ready, and reaches the launcher up to 100 s late"
        )


@rule(
    "HE202",
    "static-host-list",
    Severity.ERROR,
    why="A literal list of hosts changes only when someone edits the ConfigMap, and the kubelet syncs it about once a "
    "minute (43 to 100 s measured). Until then the launcher works with hosts that are gone.",
    fix="Use a script that looks at the cluster: the discovery sidecar's, or one that reads the state of the job's "
    "pods.",
    part=ManifestPart.LAUNCHER_POD,
    bad=_example("echo job-worker-0.job:1", "echo job-worker-1.job:1"),
    good=_GOOD_SCRIPT,
)
def static_host_list(job: LintedJob) -> Iterator[Violation]:
    """Finds discovery scripts in a ConfigMap that only print literal hosts."""
    script = discovery_script(job)
    if script and script.static_hosts:
        yield _on_script(script, f"prints {count_words(len(script.static_hosts), 'literal host')} from a ConfigMap")


@rule(
    "HE203",
    "discovery-asks-api",
    Severity.WARNING,
    why="Horovod runs the script every second while holding its driver's lock. A kubectl call or HTTP request each "
    "time costs the driver 120 ms or more and loads the API server. The MPI Operator's own proposal rejects it for "
    "that reason.",
    fix="Watch once and cache: the discovery sidecar keeps a watch open, and its script only reads a file.",
    part=ManifestPart.LAUNCHER_POD,
    bad=_example("set -e", "timeout 5 kubectl get pods -o json | jq -r 'ready pods without deletionTimestamp'"),
    good=_GOOD_SCRIPT,
)
def discovery_asks_api(job: LintedJob) -> Iterator[Violation]:
    """Finds discovery scripts that call the API server on every run."""
    script = discovery_script(job)
    if script and script.asks_api:
        yield _on_script(script, "queries the API server once per second")


@rule(
    "HE204",
    "discovery-without-limit",
    Severity.ERROR,
    why="The driver holds its lock while it waits for the script. A script that hangs blocks every resize and "
    "disables `--elastic-timeout` too.",
    fix="Put `timeout 5` before the request.",
    part=ManifestPart.LAUNCHER_POD,
    bad=_example("set -e", "kubectl get pods -o name"),
    good=_example("set -e", "timeout 5 kubectl get pods -o name"),
)
def discovery_without_limit(job: LintedJob) -> Iterator[Violation]:
    """Finds discovery scripts that send network requests without a hard time limit."""
    script = discovery_script(job)
    if script and script.asks_api and not any(_HARD_LIMIT.search(line) for line in script.lines):
        yield _on_script(script, "sends network requests without a time limit")


@rule(
    "HE205",
    "discovery-swallows-errors",
    Severity.ERROR,
    why="Empty output with exit code 0 means that every host is gone, and the job ends. With a non-zero exit code "
    "Horovod keeps the hosts it has (only a failure of the very first run ends the job).",
    fix="Use `set -e` and `set -o pipefail`; remove `|| true`, and `exit 0` at the end.",
    part=ManifestPart.LAUNCHER_POD,
    bad=_example("timeout 5 kubectl get pods -o name || true"),
    good=_example("set -e", "timeout 5 kubectl get pods -o name"),
)
def discovery_swallows_errors(job: LintedJob) -> Iterator[Violation]:
    """Finds discovery scripts that exit with 0 although their request failed."""
    script = discovery_script(job)
    if script is None or not script.asks_api:
        return
    text = "\n".join(script.lines)
    piped = any(
        _REQUEST.search(before) and after for line in script.lines for before, after in pairwise(line.split("|"))
    )
    swallowed = any(_SWALLOWED.search(line) for line in script.lines)
    if swallowed or (piped and "pipefail" not in text and "python" not in text):
        yield _on_script(
            script, "after a failed request it prints nothing and exits with 0, which means that every host is gone"
        )


@rule(
    "HE206",
    "discovery-lists-leaving-pods",
    Severity.WARNING,
    why="A preempted pod stays in phase Running for its whole grace period, and a new pod is Running before its sshd "
    "listens. If discovery lists such pods, survivors are sent to the first, and ssh to the second fails and the host "
    "is blacklisted.",
    fix="Skip pods that are not Ready, have a deletionTimestamp, or have the condition DisruptionTarget.",
    part=ManifestPart.LAUNCHER_POD,
    bad=_example("set -e", "timeout 5 kubectl get pods --field-selector status.phase=Running -o name"),
    good=_example(
        "set -e", "timeout 5 kubectl get pods -o json > /tmp/p", "jq -r '... Ready ... deletionTimestamp ...' /tmp/p"
    ),
)
def discovery_lists_leaving_pods(job: LintedJob) -> Iterator[Violation]:
    """Finds discovery scripts that list pods but check neither readiness nor deletion."""
    script = discovery_script(job)
    if script and script.asks_api and not any(_READINESS.search(line) for line in script.lines):
        yield _on_script(script, "checks neither Ready nor deletionTimestamp")


@rule(
    "HE207",
    "bad-host-line",
    Severity.ERROR,
    why="Each line of the script's output must be `host` or `host:slots`. A comment becomes a host, an IPv6 address "
    "or a second colon raises ValueError, and a host that is printed twice with different slots gets either number "
    "(observed).",
    fix="Print one `host:slots` per line and nothing else.",
    part=ManifestPart.LAUNCHER_POD,
    bad=_example("echo '#workers'", "echo fd00::12:1"),
    good=_example("echo job-worker-0.job:1"),
)
def bad_host_line(job: LintedJob) -> Iterator[Violation]:
    """Finds lines of a discovery script that Horovod misreads."""
    script = discovery_script(job)
    hosts = script.static_hosts if script else ()
    for host in hosts:
        wrong = _misread(host)
        if script and wrong:
            yield Violation(path=script.path, value=host, message=wrong)
    names = [host.partition(":")[0] for host in set(hosts)]
    for name in sorted({name for name in names if names.count(name) > 1}):
        if script:
            yield Violation(path=script.path, value=name, message="printed twice with different slots")


def _misread(line: str) -> str:
    _, _, slots = line.partition(":")
    if line.startswith("#"):
        return "a comment becomes a host"
    if _is_ipv6(line) or ":" in slots:
        return "an IPv6 address raises ValueError"
    return f"{slots!r} is not a number of slots" if slots and not slots.isdecimal() else ""


def _is_ipv6(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).version == 6
    except ValueError:
        return False


@rule(
    "HE208",
    "discovery-not-executable",
    Severity.ERROR,
    keeps_from_starting=True,
    why="Files of a ConfigMap have mode 0644 by default. The first run of the script fails, and a failure of the "
    "first run ends the job.",
    fix="Set `defaultMode: 0555` on the volume, or name an interpreter: `sh /scripts/hosts.sh`.",
    part=ManifestPart.LAUNCHER_POD,
    bad="""
spec:
  volumes: [{name: run, configMap: {name: scripts}}]
""",
    good="""
spec:
  volumes: [{name: run, configMap: {name: scripts, defaultMode: 0555}}]
""",
)
def discovery_not_executable(job: LintedJob) -> Iterator[Violation]:
    """Finds discovery scripts from a ConfigMap that are mounted without execute permission."""
    script = discovery_script(job)
    source = script.volume.get("configMap") if script else ManifestView(None)
    if script is None or script.interpreted or not source.exists:
        return
    items = [item.get("mode").number for item in source.get("items").items() if item.get("mode").exists]
    mode = items[0] if items else source.get("defaultMode").number
    if mode is None or not mode & 0o111:
        edits = (
            (SetValue((*source.path, "defaultMode"), 0o555),) if not items and isinstance(source.value, dict) else ()
        )
        yield Violation(path=source.path, value=source.value, message=f"{script.file} is not executable", edits=edits)


@rule(
    "HE209",
    "no-discovery-sidecar",
    Severity.ERROR,
    keeps_from_starting=True,
    why="`hvd-elastic discovery-sidecar` writes /run/hvd-elastic/discover-hosts. Without it the first run of the "
    "script fails, and a failure of the first run ends the job.",
    fix="Add the sidecar to the launcher's init containers, with `restartPolicy: Always`; `hvd-elastic generate` does "
    "so.",
    part=ManifestPart.LAUNCHER_POD,
    bad="spec: {initContainers: []}",
    good="""
spec:
  initContainers:
  - {name: discovery, image: example.com/hvd-elastic:1, restartPolicy: Always, command: [hvd-elastic,
    discovery-sidecar]}
""",
)
def no_discovery_sidecar(job: LintedJob) -> Iterator[Violation]:
    """Finds jobs that name the sidecar's script but do not run the discovery sidecar."""
    script = discovery_script(job)
    everywhere = job.launcher.pod.all_containers
    if (
        script
        and script.origin is ScriptOrigin.SIDECAR
        and not any(runs_hvd_elastic(c, "discovery-sidecar") for c in everywhere)
    ):
        yield _on_script(script, "no container in the launcher pod writes this script")


@rule(
    "HE210",
    "sidecar-blocks-launcher",
    Severity.ERROR,
    keeps_from_starting=True,
    why="A plain init container must end before the launcher starts, and the sidecar never ends: the launcher pod "
    "stays in Init permanently.",
    fix="Set `restartPolicy: Always` on the container (a native sidecar, Kubernetes 1.29 and later).",
    part=ManifestPart.LAUNCHER_POD,
    bad="""
spec:
  initContainers:
  - {name: discovery, image: example.com/hvd-elastic:1, command: [hvd-elastic, discovery-sidecar]}
""",
    good="""
spec:
  initContainers:
  - {name: discovery, image: example.com/hvd-elastic:1, restartPolicy: Always, command: [hvd-elastic,
    discovery-sidecar]}
""",
)
def sidecar_blocks_launcher(job: LintedJob) -> Iterator[Violation]:
    """Finds a discovery sidecar among the init containers without `restartPolicy: Always`."""
    for container in job.launcher.pod.init:
        policy = container.view.get("restartPolicy")
        if runs_hvd_elastic(container, "discovery-sidecar") and policy.value != "Always":
            yield violation(policy, "the launcher waits for this container to end", SetValue(policy.path, "Always"))


@rule(
    "HE211",
    "plain-sidecar",
    Severity.ERROR,
    why="In v2beta1 the launcher is a batch Job, whose pod succeeds only when all its containers have ended. A second "
    "container that keeps running leaves a finished job Running, and its workers with it.",
    fix="Make it a native sidecar: an init container with `restartPolicy: Always` (Kubernetes 1.29 and later).",
    part=ManifestPart.LAUNCHER_POD,
    bad="""
spec:
  containers:
  - {name: launcher, image: example.com/train:1, command: [horovodrun, -np, "2", --host-discovery-script,
    /hosts, python, t.py]}
  - {name: discovery, image: example.com/hvd-elastic:1, command: [hvd-elastic, discovery-sidecar]}
""",
    good="""
spec:
  initContainers:
  - {name: discovery, image: example.com/hvd-elastic:1, restartPolicy: Always, command: [hvd-elastic,
    discovery-sidecar]}
""",
)
def plain_sidecar(job: LintedJob) -> Iterator[Violation]:
    """Finds additional plain containers in the launcher's pod."""
    for container in job.launcher.pod.containers:
        if container.view.path != job.launcher.pod.main.view.path:
            yield violation(container.view.get("name"), "the launcher pod ends only when this container ends too")
