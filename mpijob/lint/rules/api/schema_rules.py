"""HE90x and HE91x: what the API server or the operator's validation rejects or, worse, ignores."""

import difflib
import re
from collections.abc import Iterator
from typing import Final

from hvd_elastic.mpijob.lint.document.manifest_edit import ManifestEdit, RemoveValue, RenameKey, SetValue
from hvd_elastic.mpijob.lint.document.manifest_view import ManifestView, json_path
from hvd_elastic.mpijob.lint.job.linted_job import LintedJob, MPIJobVersion, Replica
from hvd_elastic.mpijob.lint.job.mpijob_fields import (
    BadQuantity,
    UnknownField,
    WrongFieldType,
    field_errors,
    field_table,
)
from hvd_elastic.mpijob.lint.job.pod_values import refused_values
from hvd_elastic.mpijob.lint.rule import (
    SILENCE_ANNOTATION_PREFIX,
    STATIC,
    ManifestPart,
    Severity,
    Violation,
    all_rules,
    rule,
    violation,
)

_CERTAIN: Final = 0.85
_DNS_1035: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_LABEL_LENGTH: Final = 63
_MOST_NODES: Final = 5_000
_LARGEST_PORT: Final = 65_535
_UNITS: Final = {"K": "k"}
_BYTES: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGTPE]i?)[bB]", re.ASCII)
_OPERATOR_VOLUMES: Final = frozenset(("ssh-auth", "mpi-job-config", "mpi-job-kubectl"))
"""Volumes that the operators add to the pods: mpi-operator 0.8.2, `mpi_job_controller.go`; training-operator 1.8.1,
`mpi/mpijob.go`."""

_KEYS_OF_LISTS: Final = {
    "containers": ("name",),
    "env": ("name",),
    "hostAliases": ("ip",),
    "imagePullSecrets": ("name",),
    "initContainers": ("name",),
    "ports": ("containerPort", "protocol"),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
}
_DEFAULTS: Final = {"protocol": "TCP"}
_MAY_REPEAT_IN_V1: Final = ("env", "hostAliases", "imagePullSecrets")

_V1_FIELDS: Final = frozenset(("cleanPodPolicy", "mainContainer"))


@rule(
    "HE901",
    "unknown-field",
    Severity.ERROR,
    why="The API server silently drops unknown fields unless it is asked to be strict: the setting has no effect, and "
    "the job runs with the default.",
    fix="Use the field that was meant. `--fix` corrects obvious misspellings.",
    part=ManifestPart.JOB,
    bad="spec: {runPolicy: {cleanPodPolcy: Running}}",
    good="spec: {runPolicy: {cleanPodPolicy: Running}}",
)
def unknown_field(job: LintedJob) -> Iterator[Violation]:
    """Finds fields that neither an MPIJob nor the pods in it have."""
    if job.version is None:
        return
    for error in field_errors(job.view, job.version):
        if isinstance(error, UnknownField) and not _belongs_to_other_version(job, error):
            meant = _meant(error)
            message = "no such field" + (f"; did you mean {meant}?" if meant else "")
            yield Violation(path=error.view.path, value=error.view.value, message=message, edits=_rename(error))


def _meant(error: UnknownField) -> str:
    """The field that was probably meant, with its parents if it belongs elsewhere: `spec.runPolicy.backoffLimit`."""
    key, parent = str(error.view.path[-1]), error.parent.path
    if parent[-2:-1] in (("containers",), ("initContainers",)) and key in field_table()["PodSpec"]:
        return json_path((*parent[:-2], key)).removeprefix("$.")
    if not error.inside:
        return error.nearest
    return json_path((*error.parent.path, error.inside, key)).removeprefix("$.")


def _rename(error: UnknownField) -> tuple[ManifestEdit, ...]:
    """Renames an obvious misspelling. A less certain guess is left to a person."""
    key, near = str(error.view.path[-1]), "" if error.inside else error.nearest
    taken = error.parent.get(near).exists
    alike = difflib.SequenceMatcher(None, key.casefold(), near.casefold()).ratio() if near and len(key) < 100 else 0.0
    return (RenameKey(error.view.path, near),) if alike >= _CERTAIN and not taken else ()


def _belongs_to_other_version(job: LintedJob, error: UnknownField) -> bool:
    at_root = error.parent.path == job.spec.path
    key = str(error.view.path[-1])
    if at_root and job.version is MPIJobVersion.V2BETA1:
        return key in _V1_FIELDS
    return at_root and job.version is MPIJobVersion.V1 and key in _V2_FIELDS


_V2_FIELDS: Final = frozenset(
    ("sshAuthMountPath", "mpiImplementation", "launcherCreationPolicy", "runLauncherAsWorker")
)


@rule(
    "HE902",
    "unsupported-version",
    Severity.ERROR,
    why="No supported operator has v1alpha1 or v1alpha2 any more, and Kubeflow Trainer v2 has no elastic MPI.",
    fix="Write `apiVersion: kubeflow.org/v2beta1` (MPI Operator 0.3 and later).",
    part=ManifestPart.JOB,
    bad="apiVersion: kubeflow.org/v1alpha2",
    good="apiVersion: kubeflow.org/v2beta1",
)
def unsupported_version(job: LintedJob) -> Iterator[Violation]:
    """Finds an MPIJob apiVersion other than kubeflow.org/v2beta1 and kubeflow.org/v1."""
    if job.version is None:
        yield violation(job.view.get("apiVersion"), "neither kubeflow.org/v2beta1 nor kubeflow.org/v1")
    elif job.view.get("apiVersion").value != f"kubeflow.org/{job.version}":
        yield violation(job.view.get("apiVersion"), f"has no group; write kubeflow.org/{job.version}")


@rule(
    "HE903",
    "wrong-type",
    Severity.ERROR,
    why="If one value has the wrong type, the API server rejects the whole object. Commands, variables, labels and "
    "annotations are strings; YAML reads 2, yes and on as other types.",
    fix="Quote the value.",
    part=ManifestPart.LAUNCHER,
    bad="command: [horovodrun, -np, 2, --host-discovery-script, /hosts, python, train.py]",
    good='command: [horovodrun, -np, "2", --host-discovery-script, /hosts, python, train.py]',
)
def wrong_type(job: LintedJob) -> Iterator[Violation]:
    """Finds values whose type is not that of the field, such as numbers in `args` or an unquoted `true` in labels or
    variables.
    """
    if job.version is None:
        return
    for error in field_errors(job.view, job.version):
        if isinstance(error, WrongFieldType):
            value = error.view.value
            quotable = error.expected.startswith("text") and isinstance(value, int) and not isinstance(value, bool)
            edits = (SetValue(error.view.path, str(value)),) if quotable else ()
            message = f"is {_type(value)}, not {error.expected}"
            yield Violation(path=error.view.path, value=value, message=message, edits=edits)


def _type(value: object) -> str:
    names = {bool: "true or false", int: "a number", float: "a number", str: "text", list: "a list", dict: "a mapping"}
    return names.get(type(value), "empty")


def _closed_sets(job: LintedJob) -> Iterator[tuple[ManifestView, tuple[str, ...]]]:
    spec, policy = job.spec, job.spec.get("runPolicy")
    clean = ("None", "Running", "All")
    yield policy.get("cleanPodPolicy"), clean
    if job.version is MPIJobVersion.V1:
        yield spec.get("cleanPodPolicy"), clean
    restarts = (
        ("Never", "OnFailure") if job.version is MPIJobVersion.V2BETA1 else ("Always", "OnFailure", "Never", "ExitCode")
    )
    yield job.launcher.view.get("restartPolicy"), restarts
    yield job.worker.view.get("restartPolicy"), restarts
    yield spec.get("mpiImplementation"), ("OpenMPI", "Intel", "MPICH")
    yield spec.get("launcherCreationPolicy"), ("AtStartup", "WaitForWorkersReady")
    yield policy.get("managedBy"), ("kubeflow.org/mpi-operator", "kueue.x-k8s.io/multikueue")


@rule(
    "HE904",
    "bad-value",
    Severity.ERROR,
    why="The CRD declares fields such as cleanPodPolicy and dnsPolicy as plain strings, so the API server accepts any "
    "value. The operator's own validation (`validation.go`), or the API server when the operator creates the pods, "
    "refuses them, and the operator only records an event: the job stays without pods.",
    fix="Use one of the allowed values; add what is missing.",
    part=ManifestPart.JOB,
    bad="spec: {runPolicy: {cleanPodPolicy: running}}",
    good="spec: {runPolicy: {cleanPodPolicy: Running}}",
)
def bad_value(job: LintedJob) -> Iterator[Violation]:
    """Finds values that their field does not allow, in the MPIJob and in its pods, and fields without which they are
    refused.
    """
    for field, allowed in _closed_sets(job):
        if field.text is not None and field.text not in allowed:
            same = [value for value in allowed if value.casefold() == field.text.casefold()]
            edits = (SetValue(field.path, same[0]),) if same else ()
            yield violation(field, f"not one of {', '.join(allowed)}", *edits)
    policy = job.spec.get("runPolicy")
    counts = [policy.get(name) for name in ("ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit")]
    for count in (job.spec.get("slotsPerWorker"), *counts):
        if count.number is not None and count.number < 0:
            yield violation(count, "must not be negative")
    for replica in (job.launcher, job.worker):
        for refused in refused_values(replica.pod.template):
            edits = (SetValue(refused.view.path, refused.meant),) if refused.meant else ()
            yield violation(refused.view, refused.message, *edits)


@rule(
    "HE905",
    "bad-replicas",
    Severity.ERROR,
    why="The operator's validation rejects a number of launchers other than 1, or fewer than 1 worker, and creates no "
    "pod.",
    fix="Set the launcher's replicas to 1, and for an elastic job the workers' replicas to its maximum.",
    part=ManifestPart.JOB,
    bad="spec: {mpiReplicaSpecs: {Launcher: {replicas: 2}}}",
    good="spec: {mpiReplicaSpecs: {Launcher: {replicas: 1}}}",
)
def bad_replicas(job: LintedJob) -> Iterator[Violation]:
    """Checks that there is one launcher and at least one worker."""
    launcher, worker = job.launcher.view.get("replicas"), job.worker.view.get("replicas")
    if launcher.number is not None and launcher.number != 1:
        yield violation(launcher, "a job has one launcher", SetValue(launcher.path, 1))
    if worker.number is not None and worker.number < 1:
        yield violation(worker, "must be at least 1")
    elif job.elastic and job.worker.view.exists and not worker.exists:
        yield violation(worker, "defaults to 0: the job has no worker")


@rule(
    "HE906",
    "missing-part",
    Severity.ERROR,
    why="The operator's validation rejects a job without a launcher or without containers. An elastic job without "
    "workers has nothing to train on.",
    fix="Write both replica specs, each with a container.",
    part=ManifestPart.JOB,
    bad="spec: {mpiReplicaSpecs: {Worker: null}}",
    good="spec: {mpiReplicaSpecs: {Worker: {replicas: 8}}}",
)
def missing_part(job: LintedJob) -> Iterator[Violation]:
    """Finds jobs without a launcher, without containers, and elastic jobs without workers."""
    parts: list[tuple[str, Replica]] = [("Launcher", job.launcher), ("Worker", job.worker)]
    for name, replica in parts:
        if not replica.view.exists:
            if name == "Launcher" or job.elastic:
                yield violation(replica.view, f"no {name}")
        elif not replica.pod.containers:
            yield violation(replica.pod.spec.get("containers"), f"the {name} has no container")


@rule(
    "HE907",
    "field-of-other-version",
    Severity.ERROR,
    why="v1 has cleanPodPolicy and mainContainer at the root of the spec; v2beta1 has cleanPodPolicy in runPolicy and "
    "adds fields such as sshAuthMountPath. In the wrong version they are silently dropped: a job that should "
    "clean up keeps its GPUs.",
    fix="Move cleanPodPolicy into runPolicy, and remove what the version does not have.",
    part=ManifestPart.JOB,
    bad="spec: {cleanPodPolicy: Running, runPolicy: {cleanPodPolicy: null}}",
    good="spec: {runPolicy: {cleanPodPolicy: Running}}",
)
def field_of_other_version(job: LintedJob) -> Iterator[Violation]:
    """Finds fields that belong to the other API version of MPIJob."""
    foreign = (
        _V1_FIELDS
        if job.version is MPIJobVersion.V2BETA1
        else _V2_FIELDS
        if job.version is MPIJobVersion.V1
        else frozenset()
    )
    for key, view in job.spec.pairs():
        if key in foreign:
            other = MPIJobVersion.V1 if job.version is MPIJobVersion.V2BETA1 else MPIJobVersion.V2BETA1
            yield violation(view, f"only {other} has {key} here", *_move(job, view))


def _move(job: LintedJob, view: ManifestView) -> tuple[ManifestEdit, ...]:
    inside = job.spec.get("runPolicy", "cleanPodPolicy")
    if view.path[-1] != "cleanPodPolicy" or job.spec.get("runPolicy").text is not None:
        return ()
    return (RemoveValue(view.path),) if inside.exists else (SetValue(inside.path, view.value), RemoveValue(view.path))


@rule(
    "HE908",
    "bad-job-name",
    Severity.ERROR,
    why="Pods are named `<job>-worker-<index>`, and their names are host names: at most 63 lowercase letters, digits "
    "and '-', starting with a letter. The operator rejects the job with an event and creates no pod.",
    fix="Choose a shorter, plainer name.",
    part=ManifestPart.JOB,
    bad="metadata: {name: 2-fashion}",
    good="metadata: {name: fashion}",
)
def bad_job_name(job: LintedJob) -> Iterator[Violation]:
    """Checks that the longest pod name is a valid DNS-1035 label."""
    field = job.view.get("metadata", "name")
    if not field.exists:
        if not job.view.get("metadata", "generateName").exists:
            yield violation(field, "the job has no name")
        return
    longest = f"{field.value}-worker-{max(0, (job.worker.replicas or 1) - 1)}"
    if len(longest) > _LABEL_LENGTH:
        yield violation(
            field, f"pod names such as {longest[:20]}... would have {len(longest)} characters, more than 63"
        )
    elif not _DNS_1035.fullmatch(longest):
        yield violation(field, "must be lowercase letters, digits and '-', starting with a letter")


@rule(
    "HE909",
    "duplicate-key",
    Severity.ERROR,
    why="If a key occurs twice, it depends on the reader which value counts: kubectl silently takes the last.",
    fix="Keep one of them.",
    part=ManifestPart.JOB,
    bad="spec: {slotsPerWorker: 4, slotsPerWorker: 1}",
    good="spec: {slotsPerWorker: 1}",
)
def duplicate_key(job: LintedJob) -> Iterator[Violation]:
    """Finds a key that occurs twice in one mapping."""
    for path, source_range in job.document.duplicates():
        if path[: len(job.view.path)] == job.view.path:
            yield Violation(path=path, value=path[-1], message=f"occurs twice; again in line {source_range.line}")


@rule(
    "HE910",
    "overridden-restart-policy",
    Severity.WARNING,
    why="The operator replaces the restartPolicy of a pod template with that of the replica spec (by default "
    "OnFailure for the launcher and Never for workers), and mentions it only in an event.",
    fix="Set `restartPolicy` beside `replicas`.",
    part=ManifestPart.WORKER_POD,
    bad="spec: {restartPolicy: OnFailure}",
    good="spec: {restartPolicy: null}",
)
def overridden_restart_policy(job: LintedJob) -> Iterator[Violation]:
    """Finds a restartPolicy in a pod template."""
    for replica in (job.launcher, job.worker):
        field = replica.pod.spec.get("restartPolicy")
        if field.exists:
            yield violation(field, "overridden by the replica spec's restartPolicy", RemoveValue(field.path))


@rule(
    "HE911",
    "bad-silence",
    Severity.WARNING,
    why="To silence a hazard is a decision. Without a reason, no one can tell later whether it still holds.",
    fix="Write a reason: `lint.hvd-elastic.dev/HE441: the namespace denies all ingress`.",
    part=ManifestPart.JOB,
    bad='metadata: {annotations: {lint.hvd-elastic.dev/HE441: ""}}',
    good="metadata: {annotations: {lint.hvd-elastic.dev/HE441: the namespace denies all ingress}}",
)
def bad_silence(job: LintedJob) -> Iterator[Violation]:
    """Finds annotations that silence a rule that does not exist, or that give no reason."""
    names = {STATIC, *(name for known in all_rules() for name in (known.id, known.name))}
    for key, view in job.view.get("metadata", "annotations").pairs():
        if key.startswith(SILENCE_ANNOTATION_PREFIX):
            if key.removeprefix(SILENCE_ANNOTATION_PREFIX) not in names:
                yield violation(view, "silences a rule that does not exist")
            elif not (view.text or "").strip():
                yield violation(view, "gives no reason for silencing the rule")


@rule(
    "HE912",
    "too-many-replicas",
    Severity.WARNING,
    why="Kubernetes is made for clusters of up to 5,000 nodes. The operator creates all worker pods at once, and "
    "more of them than there can be nodes fill the API server and the scheduler's queue. Often a digit is too many.",
    fix="Set the worker replicas to the largest size that the job may use.",
    part=ManifestPart.JOB,
    bad="spec: {mpiReplicaSpecs: {Worker: {replicas: 800000}}}",
    good="spec: {mpiReplicaSpecs: {Worker: {replicas: 8}}}",
)
def too_many_replicas(job: LintedJob) -> Iterator[Violation]:
    """Finds more workers than the largest cluster has nodes."""
    # https://kubernetes.io/docs/setup/best-practices/cluster-large/
    if job.worker.replicas is not None and job.worker.replicas > _MOST_NODES:
        yield violation(job.worker.view.get("replicas"), f"more than the {_MOST_NODES} nodes of the largest cluster")


@rule(
    "HE913",
    "bad-quantity",
    Severity.ERROR,
    why="Kubernetes knows `Gi` and `G`, not `GiB`, `GB` or `gb`. The pods, or the whole object, are rejected: "
    "`quantities must match the regular expression`.",
    fix="Write the unit without the B: `32Gi`. `--fix` does so.",
    part=ManifestPart.WORKER,
    bad='resources: {limits: {cpu: "8", memory: 32GiB}}',
    good='resources: {limits: {cpu: "8", memory: 32Gi}}',
)
def bad_quantity(job: LintedJob) -> Iterator[Violation]:
    """Finds amounts of CPU, memory or storage that Kubernetes cannot read."""
    if job.version is None:
        return
    for error in field_errors(job.view, job.version):
        if isinstance(error, BadQuantity):
            match = _BYTES.fullmatch(error.view.text or "")
            edits = (SetValue(error.view.path, f"{match[1]}{_UNITS.get(match[2], match[2])}"),) if match else ()
            yield violation(error.view, "is not a quantity such as 500m or 16Gi", *edits)


@rule(
    "HE914",
    "bad-port",
    Severity.ERROR,
    why="A port is a number from 1 to 65535. The API server rejects every pod with another one, and the operator only "
    "records an event: the job stays without pods.",
    fix="Write the port on which the program listens.",
    part=ManifestPart.WORKER,
    bad="ports: [{name: ssh, containerPort: 222222}]",
    good="ports: [{name: ssh, containerPort: 2222}]",
)
def bad_port(job: LintedJob) -> Iterator[Violation]:
    """Finds ports of containers and probes that are not between 1 and 65535."""
    for container in _containers(job):
        ports = [port.get(name) for port in container.get("ports").items() for name in ("containerPort", "hostPort")]
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            ports += [container.get(probe, kind, "port") for kind in ("tcpSocket", "httpGet", "grpc")]
        for port in ports:
            if port.number is not None and not 1 <= port.number <= _LARGEST_PORT:
                yield violation(port, f"is not between 1 and {_LARGEST_PORT}")


def _containers(job: LintedJob) -> Iterator[ManifestView]:
    yield from (container.view for container in job.all_containers)


@rule(
    "HE915",
    "no-image",
    Severity.ERROR,
    why="The API server rejects a pod whose container has no image, and the operator only records an event: the job "
    "stays without pods.",
    fix="Name the image.",
    part=ManifestPart.WORKER,
    bad='image: ""',
    good="image: example.com/train:1",
)
def no_image(job: LintedJob) -> Iterator[Violation]:
    """Finds containers without an image."""
    for container in _containers(job):
        image = container.get("image")
        if isinstance(container.value, dict) and (
            not image.exists or (image.text is not None and not image.text.strip())
        ):
            yield violation(image, "the container has no image")


@rule(
    "HE916",
    "mount-without-volume",
    Severity.ERROR,
    why="The API server rejects a pod whose container mounts a volume that the pod does not have, and the operator "
    "only records an event: the job stays without pods.",
    fix="Add the volume to the pod, or correct the name.",
    part=ManifestPart.WORKER_POD,
    bad="spec: {containers: [{name: worker, volumeMounts: [{name: data, mountPath: /data}]}], volumes: []}",
    good="""
spec:
  containers: [{name: worker, volumeMounts: [{name: data, mountPath: /data}]}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
""",
)
def mount_without_volume(job: LintedJob) -> Iterator[Violation]:
    """Finds volume mounts whose volume the pod does not have."""
    for replica in (job.launcher, job.worker):
        volumes = {volume.get("name").text for volume in replica.pod.spec.get("volumes").items()}
        for container in replica.pod.all_containers:
            for mount in container.view.get("volumeMounts").items():
                name = mount.get("name")
                if name.text and name.text not in volumes | _OPERATOR_VOLUMES:
                    yield violation(name, f"the pod has no volume {name.text!r}")


@rule(
    "HE917",
    "twice-in-a-list",
    Severity.ERROR,
    # x-kubernetes-list-map-keys in the CRDs of mpi-operator 0.8.2 and training-operator 1.8.1.
    why="The items of these lists are told apart by one field, and the API server refuses the MPIJob, or its pods, if "
    "two have the same value there.",
    fix="Keep one of the two.",
    part=ManifestPart.WORKER,
    bad="env: [{name: NCCL_DEBUG, value: INFO}, {name: NCCL_DEBUG, value: WARN}]",
    good="env: [{name: NCCL_SOCKET_IFNAME, valueFrom: {configMapKeyRef: {name: hub, key: interface}}}]",
)
def twice_in_a_list(job: LintedJob) -> Iterator[Violation]:
    """Finds variables, volumes, mounts, ports and the like that a list has twice."""
    for replica in (job.launcher, job.worker):
        for holder in (replica.pod.spec, *(container.view for container in replica.pod.all_containers)):
            for name, fields in _KEYS_OF_LISTS.items():
                if job.version is MPIJobVersion.V2BETA1 or name not in _MAY_REPEAT_IN_V1:
                    yield from _repeated(holder.get(name), fields)


def _repeated(items: ManifestView, fields: tuple[str, ...]) -> Iterator[Violation]:
    seen: set[tuple[object, ...]] = set()
    for item in items.items():
        key = tuple(item.get(field).value or _DEFAULTS.get(field) for field in fields)
        if not all(isinstance(value, str | int) for value in key):
            continue
        if key in seen:
            yield violation(item.get(fields[0]), f"stands twice in {items.path[-1]}")
        seen.add(key)
