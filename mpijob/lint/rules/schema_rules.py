"""HE9xx: what the API server or the operator's validation would refuse, or worse, ignore."""

import difflib
import re
from collections.abc import Iterator
from typing import Final

from hvd_elastic.mpijob.lint.document.edit import Edit, Remove, Rename, Set
from hvd_elastic.mpijob.lint.document.view import View
from hvd_elastic.mpijob.lint.model.linted_job import LintedJob, Replica, Version
from hvd_elastic.mpijob.lint.model.mpijob_fields import Mistyped, Unknown, misfits
from hvd_elastic.mpijob.lint.rule import SILENCE, At, Hit, Severity, hit, registered, rule

_CERTAIN: Final = 0.85
_DNS_1035: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_LABEL_LENGTH: Final = 63

_V1_FIELDS: Final = frozenset(("cleanPodPolicy", "mainContainer"))


@rule(
    "HE901",
    "unknown-field",
    Severity.ERROR,
    why="The API server drops them without a word unless it is asked to be strict: the setting has no effect, and the "
    "job runs with the default.",
    fix="Use the field that was meant. `--fix` renames a plain slip.",
    at=At.JOB,
    bad="spec: {runPolicy: {cleanPodPolcy: Running}}",
    good="spec: {runPolicy: {cleanPodPolicy: Running}}",
)
def unknown_field(job: LintedJob) -> Iterator[Hit]:
    """Finds fields that an MPIJob, or the pods in it, does not have."""
    if job.version is None:
        return
    for misfit in misfits(job.view, job.version):
        if isinstance(misfit, Unknown) and not _belongs_to_other_version(job, misfit):
            message = "no such field" + (f"; did you mean {misfit.nearest}?" if misfit.nearest else "")
            yield Hit(path=misfit.view.path, value=misfit.view.value, message=message, edits=_rename(misfit))


def _rename(misfit: Unknown) -> tuple[Edit, ...]:
    """A slip of the pen is put right; a guess is left to a person."""
    key, near = str(misfit.view.path[-1]), misfit.nearest
    taken = misfit.parent.get(near).exists
    alike = difflib.SequenceMatcher(None, key.casefold(), near.casefold()).ratio() if near and len(key) < 100 else 0.0
    return (Rename(misfit.view.path, near),) if alike >= _CERTAIN and not taken else ()


def _belongs_to_other_version(job: LintedJob, misfit: Unknown) -> bool:
    at_root = misfit.parent.path == job.spec.path
    key = str(misfit.view.path[-1])
    if at_root and job.version is Version.V2BETA1:
        return key in _V1_FIELDS
    return at_root and job.version is Version.V1 and key in _V2_FIELDS


_V2_FIELDS: Final = frozenset(
    ("sshAuthMountPath", "mpiImplementation", "launcherCreationPolicy", "runLauncherAsWorker")
)


@rule(
    "HE902",
    "unsupported-version",
    Severity.ERROR,
    why="v1alpha1 and v1alpha2 are gone from every supported operator, and Kubeflow Trainer v2 has no elastic MPI.",
    fix="Write `apiVersion: kubeflow.org/v2beta1` (MPI Operator 0.3 and later).",
    at=At.JOB,
    bad="apiVersion: kubeflow.org/v1alpha2",
    good="apiVersion: kubeflow.org/v2beta1",
)
def unsupported_version(job: LintedJob) -> Iterator[Hit]:
    """Finds an apiVersion of MPIJob that is neither kubeflow.org/v2beta1 nor kubeflow.org/v1."""
    if job.version is None:
        yield hit(job.view.get("apiVersion"), "neither kubeflow.org/v2beta1 nor kubeflow.org/v1")
    elif job.view.get("apiVersion").value != f"kubeflow.org/{job.version}":
        yield hit(job.view.get("apiVersion"), f"the group is missing: kubeflow.org/{job.version}")


@rule(
    "HE903",
    "wrong-type",
    Severity.ERROR,
    why="The API server refuses the whole object. Commands, variables, labels and annotations are text; YAML reads 2, "
    "yes and on as something else.",
    fix="Quote the value.",
    at=At.LAUNCHER,
    bad="command: [horovodrun, -np, 2, --host-discovery-script, /hosts, python, train.py]",
    good='command: [horovodrun, -np, "2", --host-discovery-script, /hosts, python, train.py]',
)
def wrong_type(job: LintedJob) -> Iterator[Hit]:
    """Finds values of another type than their field's: numbers in `args`, unquoted `true` in labels or variables."""
    if job.version is None:
        return
    for misfit in misfits(job.view, job.version):
        if isinstance(misfit, Mistyped):
            value = misfit.view.value
            quotable = misfit.expected.startswith("text") and isinstance(value, int) and not isinstance(value, bool)
            edits = (Set(misfit.view.path, str(value)),) if quotable else ()
            message = f"is {_type(value)}, not {misfit.expected}"
            yield Hit(path=misfit.view.path, value=value, message=message, edits=edits)


def _type(value: object) -> str:
    spoken = {bool: "true or false", int: "a number", float: "a number", str: "text", list: "a list", dict: "a mapping"}
    return spoken.get(type(value), "empty")


def _closed_sets(job: LintedJob) -> Iterator[tuple[View, tuple[str, ...]]]:
    spec, policy = job.spec, job.spec.get("runPolicy")
    clean = ("None", "Running", "All")
    yield policy.get("cleanPodPolicy"), clean
    if job.version is Version.V1:
        yield spec.get("cleanPodPolicy"), clean
    restarts = (
        ("Never", "OnFailure") if job.version is Version.V2BETA1 else ("Always", "OnFailure", "Never", "ExitCode")
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
    why="The CRD has plain strings there, so the API server takes them; the operator's own validation "
    "(`validation.go`) then marks the job with an event and makes no pod. The job stays without a status.",
    fix="Use one of the values named.",
    at=At.JOB,
    bad="spec: {runPolicy: {cleanPodPolicy: running}}",
    good="spec: {runPolicy: {cleanPodPolicy: Running}}",
)
def bad_value(job: LintedJob) -> Iterator[Hit]:
    """Finds values outside their closed set, and negative counts."""
    for field, allowed in _closed_sets(job):
        if field.text is not None and field.text not in allowed:
            same = [value for value in allowed if value.casefold() == field.text.casefold()]
            edits = (Set(field.path, same[0]),) if same else ()
            yield hit(field, f"not one of {', '.join(allowed)}", *edits)
    policy = job.spec.get("runPolicy")
    counts = [policy.get(name) for name in ("ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit")]
    for count in (job.spec.get("slotsPerWorker"), *counts):
        if count.number is not None and count.number < 0:
            yield hit(count, "must not be negative")


@rule(
    "HE905",
    "bad-replicas",
    Severity.ERROR,
    why="The operator's validation refuses other numbers, and makes no pod.",
    fix="Set the launcher's replicas to 1; for an elastic job the workers' to its maximum.",
    at=At.JOB,
    bad="spec: {mpiReplicaSpecs: {Launcher: {replicas: 2}}}",
    good="spec: {mpiReplicaSpecs: {Launcher: {replicas: 1}}}",
)
def bad_replicas(job: LintedJob) -> Iterator[Hit]:
    """Checks that there is one launcher and at least one worker."""
    launcher, worker = job.launcher.view.get("replicas"), job.worker.view.get("replicas")
    if launcher.number is not None and launcher.number != 1:
        yield hit(launcher, "a job has one launcher", Set(launcher.path, 1))
    if worker.number is not None and worker.number < 1:
        yield hit(worker, "at least one worker")
    elif job.elastic and job.worker.view.exists and not worker.exists:
        yield hit(worker, "0 unless set: the job has no worker")


@rule(
    "HE906",
    "missing-part",
    Severity.ERROR,
    why="The operator's validation refuses them, or there is nothing to train on.",
    fix="Write both replica specs, each with a container.",
    at=At.JOB,
    bad="spec: {mpiReplicaSpecs: {Worker: null}}",
    good="spec: {mpiReplicaSpecs: {Worker: {replicas: 8}}}",
)
def missing_part(job: LintedJob) -> Iterator[Hit]:
    """Finds jobs without a launcher, without containers, and elastic jobs without workers."""
    parts: list[tuple[str, Replica]] = [("Launcher", job.launcher), ("Worker", job.worker)]
    for name, replica in parts:
        if not replica.view.exists:
            if name == "Launcher" or job.elastic:
                yield hit(replica.view, f"no {name}")
        elif not replica.pod.containers:
            yield hit(replica.pod.spec.get("containers"), f"the {name} has no container")


@rule(
    "HE907",
    "field-of-other-version",
    Severity.ERROR,
    why="v1 has cleanPodPolicy and mainContainer at the root of the spec, v2beta1 has cleanPodPolicy in runPolicy and "
    "knows ssh. In the wrong version they are dropped without a word: a job thought to clean up keeps its GPUs.",
    fix="Move cleanPodPolicy into runPolicy; leave out what the version does not have.",
    at=At.JOB,
    bad="spec: {cleanPodPolicy: Running, runPolicy: {cleanPodPolicy: null}}",
    good="spec: {runPolicy: {cleanPodPolicy: Running}}",
)
def field_of_other_version(job: LintedJob) -> Iterator[Hit]:
    """Finds fields that belong to the other API version of MPIJob."""
    foreign = _V1_FIELDS if job.version is Version.V2BETA1 else _V2_FIELDS if job.version is Version.V1 else frozenset()
    for key, view in job.spec.pairs():
        if key in foreign:
            other = Version.V1 if job.version is Version.V2BETA1 else Version.V2BETA1
            yield hit(view, f"{key} stands here in {other} only", *_move(job, view))


def _move(job: LintedJob, view: View) -> tuple[Edit, ...]:
    inside = job.spec.get("runPolicy", "cleanPodPolicy")
    if view.path[-1] != "cleanPodPolicy" or job.spec.get("runPolicy").text is not None:
        return ()
    return (Remove(view.path),) if inside.exists else (Set(inside.path, view.value), Remove(view.path))


@rule(
    "HE908",
    "bad-job-name",
    Severity.ERROR,
    why="Pods are `<job>-worker-<index>` and their names are host names: at most 63 small letters, digits and '-', a "
    "letter first. The operator refuses the job with an event and makes no pod.",
    fix="Take a shorter, plainer name.",
    at=At.JOB,
    bad="metadata: {name: 2-fashion}",
    good="metadata: {name: fashion}",
)
def bad_job_name(job: LintedJob) -> Iterator[Hit]:
    """Checks that the longest pod name is a DNS-1035 label."""
    field = job.view.get("metadata", "name")
    if not field.exists:
        if not job.view.get("metadata", "generateName").exists:
            yield hit(field, "the job has no name")
        return
    longest = f"{field.value}-worker-{max(0, (job.worker.replicas or 1) - 1)}"
    if len(longest) > _LABEL_LENGTH:
        yield hit(field, f"pod names such as {longest[:20]}... would have {len(longest)} characters, more than 63")
    elif not _DNS_1035.fullmatch(longest):
        yield hit(field, "not small letters, digits and '-', a letter first")


@rule(
    "HE909",
    "duplicate-key",
    Severity.ERROR,
    why="Which one counts depends on the reader: kubectl takes the last and says nothing.",
    fix="Keep one.",
    at=At.JOB,
    bad="spec: {slotsPerWorker: 4, slotsPerWorker: 1}",
    good="spec: {slotsPerWorker: 1}",
)
def duplicate_key(job: LintedJob) -> Iterator[Hit]:
    """Finds a key that stands twice in one mapping."""
    for path, region in job.document.duplicates():
        if path[: len(job.view.path)] == job.view.path:
            yield Hit(path=path, value=path[-1], message=f"stands twice; again in line {region.line}")


@rule(
    "HE910",
    "overridden-restart-policy",
    Severity.WARNING,
    why="The operator overrides it by the replica spec's (launcher OnFailure, worker Never unless set) and only says "
    "so in an event.",
    fix="Set `restartPolicy` beside `replicas`.",
    at=At.WORKER_POD,
    bad="spec: {restartPolicy: OnFailure}",
    good="spec: {restartPolicy: null}",
)
def overridden_restart_policy(job: LintedJob) -> Iterator[Hit]:
    """Finds a restartPolicy in a pod template."""
    for replica in (job.launcher, job.worker):
        field = replica.pod.spec.get("restartPolicy")
        if field.exists:
            yield hit(field, "overridden by the replica spec's restartPolicy", Remove(field.path))


@rule(
    "HE911",
    "bad-silence",
    Severity.WARNING,
    why="A silenced hazard is a decision. Without its reason nobody can tell later whether it still holds.",
    fix="Write `lint.hvd-elastic.dev/HE441: the namespace denies all ingress`.",
    at=At.JOB,
    bad='metadata: {annotations: {lint.hvd-elastic.dev/HE441: ""}}',
    good="metadata: {annotations: {lint.hvd-elastic.dev/HE441: the namespace denies all ingress}}",
)
def bad_silence(job: LintedJob) -> Iterator[Hit]:
    """Finds annotations that silence a rule which does not exist, or give no reason."""
    names = {name for known in registered() for name in (known.id, known.slug)}
    for key, view in job.view.get("metadata", "annotations").pairs():
        if key.startswith(SILENCE):
            if key.removeprefix(SILENCE) not in names:
                yield hit(view, "silences no rule that exists")
            elif not (view.text or "").strip():
                yield hit(view, "silences a rule without a reason")
