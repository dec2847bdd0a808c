"""HE40x: what the job's pods may ask of the API server."""

from collections.abc import Iterator
from typing import Final

from hvd_elastic.mpijob.lint.document.edit import Set
from hvd_elastic.mpijob.lint.document.view import View
from hvd_elastic.mpijob.lint.model.host_script import host_script
from hvd_elastic.mpijob.lint.model.linted_job import LintedJob, Version, is_ours
from hvd_elastic.mpijob.lint.rule import At, Hit, Severity, hit, rule

_READ: Final = frozenset(("get", "list", "watch"))
_NEEDED: Final = _READ
_ALLOWED: Final = {
    "pods": _READ | {"delete", "patch"},
    "pods/status": frozenset(("patch",)),
    "pods/finalizers": frozenset(("patch",)),
    "events": frozenset(("create", "patch")),
    "nodes": _READ,
    "mpijobs": _READ | {"patch"},
    "mpijobs/status": frozenset(("get",)),
}
"""What a discovery sidecar and reaper has a use for."""

_ROLE: Final = """
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: fashion-discovery}}
rules: [{{apiGroups: [""], resources: [{resources}], verbs: [{verbs}]}}]
"""


def _asks_api(job: LintedJob) -> bool:
    script = host_script(job)
    sidecar = any(is_ours(c, "discovery-sidecar") for c in (*job.launcher.pod.init, *job.launcher.pod.containers))
    return sidecar or bool(script and script.asks_api)


def _account(job: LintedJob) -> View:
    spec = job.launcher.pod.spec
    name = spec.get("serviceAccountName")
    return name if name.exists else spec.get("serviceAccount")


@rule(
    "HE401",
    "no-service-account",
    Severity.ERROR,
    why="In v2beta1 the operator makes no rights for the launcher, and the namespace's default account has none: "
    "every list is answered with 403, and a first failure of discovery ends the job.",
    fix="Make a ServiceAccount with a Role (pods: get, list, watch) and a RoleBinding, and name it in the launcher's "
    "pod.",
    at=At.LAUNCHER_POD,
    bad="spec: {serviceAccountName: null}",
    good="spec: {serviceAccountName: fashion-discovery}",
)
def no_service_account(job: LintedJob) -> Iterator[Hit]:
    """Finds launchers that ask the API server about pods but name no ServiceAccount."""
    account = _account(job)
    if job.version is Version.V2BETA1 and _asks_api(job) and account.value in (None, "default"):
        yield hit(account, "the default account may not list pods")


def _bindings(job: LintedJob) -> Iterator[View]:
    """Role bindings that name the launcher's account."""
    name = _account(job).text
    for binding in job.companions.of("RoleBinding", "ClusterRoleBinding"):
        for subject in binding.get("subjects").items():
            own = binding.get("metadata", "namespace").text or job.namespace
            here = (subject.get("namespace").text or own) == job.namespace
            if subject.get("kind").value == "ServiceAccount" and subject.get("name").value == name and here:
                yield binding


def _rules(job: LintedJob) -> Iterator[tuple[View, bool]]:
    """The rules of the roles bound to the account, and whether they hold for the whole cluster."""
    for binding in _bindings(job):
        reference = binding.get("roleRef")
        cluster = binding.get("kind").value == "ClusterRoleBinding"
        role = job.companions.named(str(reference.get("kind").value), reference.get("name").text)
        for entry in role.get("rules").items():
            yield entry, cluster


def _texts(view: View) -> set[str]:
    return {item.text for item in view.items() if item.text}


@rule(
    "HE402",
    "missing-rights",
    Severity.ERROR,
    why="A discovery that is refused prints nothing it can trust, and a first failure ends the job.",
    fix="Bind the account to a Role with pods: get, list, watch.",
    at=At.STREAM,
    bad=_ROLE.format(resources="pods", verbs="get"),
    good=_ROLE.format(resources="pods", verbs="get, list, watch, delete"),
)
def missing_rights(job: LintedJob) -> Iterator[Hit]:
    """Checks that the launcher's account may get, list and watch pods, where the stream holds its roles."""
    account = _account(job)
    if not _asks_api(job) or not account.text or next(job.companions.of("Role", "ClusterRole"), None) is None:
        return
    granted: set[str] = set()
    for entry, _ in _rules(job):
        if {"pods", "*"} & _texts(entry.get("resources")):
            granted |= _texts(entry.get("verbs"))
    missing = _NEEDED - granted if "*" not in granted else set()
    if missing:
        yield hit(account, f"no Role of this stream lets it {', '.join(sorted(missing))} pods")


@rule(
    "HE403",
    "excessive-rights",
    Severity.WARNING,
    why="The launcher starts what users write, and Horovod 0.28.1 unpickles what is sent to it: whoever gets in has "
    "these rights. `pods/exec` was needed in v1 only; secrets and wildcards never.",
    fix="Leave pods: get, list, watch, and delete where a reaper runs, in the job's own namespace.",
    at=At.STREAM,
    bad=_ROLE.format(resources="pods, pods/exec, secrets", verbs="get, list, watch, create"),
    good=_ROLE.format(resources="pods", verbs="get, list, watch, delete"),
)
def excessive_rights(job: LintedJob) -> Iterator[Hit]:
    """Finds rights of the launcher's account that discovery has no use for."""
    account = _account(job)
    found: set[str] = set()
    for entry, cluster in _rules(job):
        verbs = _texts(entry.get("verbs"))
        for resource in _texts(entry.get("resources")):
            allowed = _ALLOWED.get(resource, frozenset())
            too_wide = cluster and resource != "nodes"
            exec_in_v1 = job.version is Version.V1 and resource == "pods/exec"
            if (verbs - allowed or too_wide) and not exec_in_v1:
                found.add(f"{resource}: {', '.join(sorted(verbs))}" + (" in the whole cluster" if too_wide else ""))
    if found:
        yield hit(account, f"may do more than discovery needs ({'; '.join(sorted(found))})")


@rule(
    "HE404",
    "token-on-workers",
    Severity.WARNING,
    why="Workers run the training script and never ask the API server. A mounted token is one more thing that a "
    "script, or whoever reaches Horovod's ports, can take.",
    fix="Set `automountServiceAccountToken: false` on the workers' pod. Cloud identities (IRSA, workload identity) "
    "have volumes of their own and go on working.",
    at=At.WORKER_POD,
    bad="spec: {automountServiceAccountToken: null}",
    good="spec: {automountServiceAccountToken: false}",
)
def token_on_workers(job: LintedJob) -> Iterator[Hit]:
    """Finds workers that get an API token."""
    field = job.worker.pod.spec.get("automountServiceAccountToken")
    if job.worker.pod.main.view.exists and field.value is not False:
        yield hit(field, "the workers' pods get an API token", Set(field.path, False))
