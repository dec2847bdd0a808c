"""HE40x: what the job's pods are allowed to do at the API server."""

from collections.abc import Iterator
from typing import Final

from hvd_elastic.mpijob.lint.document.manifest_edit import SetValue
from hvd_elastic.mpijob.lint.document.manifest_view import ManifestView
from hvd_elastic.mpijob.lint.job.discovery_script import discovery_script
from hvd_elastic.mpijob.lint.job.linted_job import LintedJob, MPIJobVersion, runs_hvd_elastic
from hvd_elastic.mpijob.lint.rule import ManifestPart, Severity, Violation, rule, violation

_READ: Final = frozenset(("get", "list", "watch"))
_NEEDED: Final = frozenset(("list", "watch"))
_OF_THE_JOB: Final = frozenset(
    (
        "configmaps",
        "jobs",
        "networkpolicies",
        "poddisruptionbudgets",
        "podmonitors",
        "serviceaccounts",
    )
)
"""Of which discovery needs those that are named: its ledger, its launcher's Job, and what goes with it."""
_OF_THE_JOB_VERBS: Final = frozenset(("get", "patch"))
_MADE_AGAIN: Final = frozenset(("create",))
"""With a name it allows server-side apply of that one, and no POST."""
_ALLOWED: Final = {
    "pods": _READ | {"delete", "patch"},
    "pods/status": frozenset(("patch",)),
    "pods/finalizers": frozenset(("patch",)),
    "events": frozenset(("list", "create")),
    "nodes": _READ,
    "mpijobs": _READ | {"patch"},
    "mpijobs/status": frozenset(("get",)),
}
"""What a discovery sidecar with its reaper needs."""

_ROLE: Final = """
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: fashion-discovery}}
rules: [{{apiGroups: [""], resources: [{resources}], verbs: [{verbs}]}}]
"""


def _asks_api(job: LintedJob) -> bool:
    script = discovery_script(job)
    sidecar = any(runs_hvd_elastic(c, "discovery-sidecar") for c in job.launcher.pod.all_containers)
    return sidecar or bool(script and script.asks_api)


def _account(job: LintedJob) -> ManifestView:
    spec = job.launcher.pod.spec
    name = spec.get("serviceAccountName")
    return name if name.exists else spec.get("serviceAccount")


@rule(
    "HE401",
    "no-service-account",
    Severity.ERROR,
    why="In v2beta1 the operator creates no permissions for the launcher, and the namespace's default account has "
    "none: every list request is answered with 403, and a failure of the first discovery ends the job.",
    fix="Create a ServiceAccount with a Role (pods: get, list, watch) and a RoleBinding, and name it in the "
    "launcher's pod.",
    part=ManifestPart.LAUNCHER_POD,
    bad="spec: {serviceAccountName: null}",
    good="spec: {serviceAccountName: fashion-discovery}",
)
def no_service_account(job: LintedJob) -> Iterator[Violation]:
    """Finds launchers that query the API server for pods but name no ServiceAccount."""
    account = _account(job)
    if job.version is MPIJobVersion.V2BETA1 and _asks_api(job) and account.value in (None, "default"):
        yield violation(account, "the default account is not allowed to list pods")


def _bindings(job: LintedJob) -> Iterator[ManifestView]:
    """The role bindings that name the launcher's account."""
    name = _account(job).text
    for binding in job.related_objects.of_kind("RoleBinding", "ClusterRoleBinding"):
        for subject in binding.get("subjects").items():
            own = binding.get("metadata", "namespace").text or job.namespace
            here = (subject.get("namespace").text or own) == job.namespace
            if subject.get("kind").value == "ServiceAccount" and subject.get("name").value == name and here:
                yield binding


def _rules(job: LintedJob) -> Iterator[tuple[ManifestView, bool]]:
    """The rules of the roles bound to the account, and whether each applies to the whole cluster."""
    for binding in _bindings(job):
        reference = binding.get("roleRef")
        cluster = binding.get("kind").value == "ClusterRoleBinding"
        role = job.related_objects.named(str(reference.get("kind").value), reference.get("name").text)
        for entry in role.get("rules").items():
            yield entry, cluster


def _texts(view: ManifestView) -> set[str]:
    return {item.text for item in view.items() if item.text}


@rule(
    "HE402",
    "missing-rights",
    Severity.ERROR,
    keeps_from_starting=True,
    why="If its requests are denied, discovery has no list that it can trust, and a failure of the first discovery "
    "ends the job.",
    fix="Bind the account to a Role with pods: list, watch.",
    part=ManifestPart.RELATED_OBJECT,
    bad=_ROLE.format(resources="pods", verbs="get"),
    good=_ROLE.format(resources="pods", verbs="get, list, watch, delete"),
)
def missing_rights(job: LintedJob) -> Iterator[Violation]:
    """Checks that the launcher's account may list and watch pods, if the files include its roles."""
    account = _account(job)
    if not _asks_api(job) or not account.text or next(job.related_objects.of_kind("Role", "ClusterRole"), None) is None:
        return
    granted: set[str] = set()
    for entry, _ in _rules(job):
        if {"pods", "*"} & _texts(entry.get("resources")):
            granted |= _texts(entry.get("verbs"))
    missing = _NEEDED - granted if "*" not in granted else set()
    if missing:
        yield violation(account, f"no Role in these files allows it to {', '.join(sorted(missing))} pods")


@rule(
    "HE403",
    "excessive-rights",
    Severity.WARNING,
    why="The launcher runs what users write, and Horovod 0.28.1 as it is published what anyone sends it (HE443): who "
    "gets in has these permissions. Whoever may patch a RoleBinding and has the rights that it gives may give them to "
    "any other account. Only v1 needed `pods/exec`; secrets and wildcards are never needed.",
    fix="Keep pods: get, list, watch, and delete if a reaper runs, all in the job's own namespace.",
    part=ManifestPart.RELATED_OBJECT,
    bad=_ROLE.format(resources="pods, pods/exec, secrets", verbs="get, list, watch, create"),
    good=_ROLE.format(resources="pods", verbs="get, list, watch, delete"),
)
def excessive_rights(job: LintedJob) -> Iterator[Violation]:
    """Finds permissions of the launcher's account that discovery does not need."""
    account = _account(job)
    found: set[str] = set()
    for entry, cluster in _rules(job):
        verbs = _texts(entry.get("verbs"))
        for resource in _texts(entry.get("resources")):
            allowed = _ALLOWED.get(resource, frozenset())
            if resource in _OF_THE_JOB and _texts(entry.get("resourceNames")):
                allowed = _OF_THE_JOB_VERBS | (_MADE_AGAIN if resource == "configmaps" else set())
            too_wide = cluster and resource != "nodes"
            exec_in_v1 = job.version is MPIJobVersion.V1 and resource == "pods/exec"
            if (verbs - allowed or too_wide) and not exec_in_v1:
                found.add(f"{resource}: {', '.join(sorted(verbs))}" + (" in the whole cluster" if too_wide else ""))
    if found:
        yield violation(account, f"may do more than discovery needs ({'; '.join(sorted(found))})")


@rule(
    "HE404",
    "token-on-workers",
    Severity.WARNING,
    why="Workers run the training script and never query the API server. A mounted token is one more thing that the "
    "script, or anyone who reaches Horovod's ports, can take.",
    fix="Set `automountServiceAccountToken: false` on the workers' pod. Cloud identities do not use this token: IRSA, "
    "EKS Pod Identity and AKS workload identity mount one of their own, and GKE's metadata server knows the pod by its "
    "address. But a NetworkPolicy that restricts egress must let workers reach who hands out credentials: on EKS "
    "169.254.170.23 port 80 (Pod Identity) or STS on port 443 (IRSA), on GKE 169.254.169.254 port 80 and "
    "169.254.169.252 port 988, on AKS login.microsoftonline.com on port 443.",
    part=ManifestPart.WORKER_POD,
    bad="spec: {automountServiceAccountToken: null}",
    good="spec: {automountServiceAccountToken: false}",
)
def token_on_workers(job: LintedJob) -> Iterator[Violation]:
    """Finds workers that receive an API token."""
    field = job.worker.pod.spec.get("automountServiceAccountToken")
    if job.worker.pod.main.view.exists and field.value is not False:
        yield violation(field, "the workers' pods receive an API token", SetValue(field.path, False))
