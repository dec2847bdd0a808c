"""What a thief can do with the accounts of a job on a real API server: he passes no right on, and makes no pods.

Without the platform kit RBAC alone keeps Role and RoleBinding. With it, the guard looks at the account that asks: so no
account that it looks at may have another one bound to its rights.
"""

from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any

import pytest
import yaml

from hvd_elastic.client.doctor.diagnosis import Level
from hvd_elastic.client.doctor.fact_reader import NEEDED_RIGHTS
from hvd_elastic.discovery.kube.api_server import ApiServer, ApiStatusError
from hvd_elastic.mpijob.contract import Role
from hvd_elastic.mpijob.manifests.supporting.rbac import SUFFIX
from hvd_elastic.setup.platform_kit.mpijob_guard import mpijob_guard
from testbed.cluster import jobs
from testbed.cluster.site import Site, make_namespace, owned_by_nobody, remove_namespace
from testbed.cluster.standing import SIZE, start
from testbed.kube import waiting
from testbed.kube.kubectl import Kubectl
from tests.cluster.test_discovery import with_token
from tests.cluster.test_doctor import bad, examined
from tests.cluster.test_operating import call

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420, func_only=True)]

JOB, NAMESPACE = "loot", "stolen"
ACCOMPLICE, RUNNER = "accomplice", "search-sweep"
RBAC = "rbac.authorization.k8s.io"
THIEVES = ["sidecar", "launcher", "worker", "runner"]
REPLICAS = {"spec": {"mpiReplicaSpecs": {"Worker": {"replicas": 2}}}}
TEMPLATE = {"spec": {"mpiReplicaSpecs": {"Worker": {"template": {"spec": {"serviceAccountName": "admin"}}}}}}
TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token"

Attempt = Callable[[ApiServer], object]


def description(site: Site, kubectl: Kubectl) -> dict[str, Any]:
    """A suspended job: the operator makes no pod of it."""
    return jobs.describe(site, kubectl, JOB, ["sleep", "1"], suspend=True)


@pytest.fixture(scope="module")
def stolen(cluster: Site) -> Iterator[Kubectl]:
    """A job as kubectl applies it, without any label of a sweep; a sweep's runner that may patch it; an accomplice."""
    kubectl = make_namespace(cluster, NAMESPACE)
    kubectl.apply(jobs.generate(description(cluster, kubectl)))
    accounts = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": one}} for one in (ACCOMPLICE, RUNNER)
    ]
    mpijobs = {"apiGroups": ["kubeflow.org"], "resources": ["mpijobs"], "resourceNames": [JOB]}
    kubectl.apply([*accounts, *granted(RUNNER, [{**mpijobs, "verbs": ["get", "patch"]}])])
    waiting.until(
        "the rights are in force",
        lambda: all(not refused(kubectl, thief, patch_job(kubectl, {})) for thief in ("sidecar", "runner")),
        within_seconds=30,
    )
    yield kubectl
    remove_namespace(cluster, NAMESPACE)


@pytest.fixture
def guard(cluster: Site, stolen: Kubectl) -> Iterator[None]:
    """The policies of `platform-kit --with mpijob-guard`, and nothing else of it."""
    cluster.local()
    cluster.kubectl.apply(mpijob_guard())
    try:
        for thief in ("sidecar", "runner"):
            waiting.until(
                "the policy is in force",
                lambda thief=thief: "may change nothing" in refused(stolen, thief, patch_job(stolen, TEMPLATE)),  # type: ignore[misc]
                within_seconds=60,
            )
        yield
    finally:
        for one in mpijob_guard():
            cluster.kubectl("delete", one["kind"], one["metadata"]["name"], "--ignore-not-found")


def granted(account: str, rules: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A Role and its RoleBinding, of the account's name."""
    meta = {"name": account}
    subject = {"kind": "ServiceAccount", "name": account}
    reference = {"apiGroup": RBAC, "kind": "Role", "name": account}
    return [
        {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": meta, "rules": rules},
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": reference,
            "subjects": [subject],
        },
    ]


def account_of(kubectl: Kubectl, thief: str) -> str:
    """The account of the pod, or of the container, that was broken into."""
    templates = kubectl.get("mpijob", JOB)["spec"]["mpiReplicaSpecs"]
    in_pod = {
        "sidecar": templates["Launcher"]["template"]["spec"]["serviceAccountName"],
        "launcher": templates["Launcher"]["template"]["spec"]["serviceAccountName"],
        "worker": templates["Worker"]["template"]["spec"].get("serviceAccountName", "default"),
        "runner": RUNNER,
        ACCOMPLICE: ACCOMPLICE,
    }
    return str(in_pod[thief])


def refused(kubectl: Kubectl, thief: str, attempt: Attempt) -> str:
    """What the API server answers to the owner of a token of this account; empty: it did what was asked for."""
    return answer(kubectl, kubectl("create", "token", account_of(kubectl, thief)).strip(), attempt)


def answer(kubectl: Kubectl, token: str, attempt: Attempt) -> str:
    server = ApiServer(with_token(kubectl, token))
    try:
        attempt(server)
    except ApiStatusError as error:
        if error.status != HTTPStatus.FORBIDDEN:
            raise
        return str(error)
    finally:
        server.close()
    return ""


def patch_job(kubectl: Kubectl, change: dict[str, Any], job: str = JOB) -> Attempt:
    """Nothing is changed, whatever is allowed."""
    path = f"/apis/kubeflow.org/v2beta1/namespaces/{kubectl.namespace}/mpijobs/{job}?dryRun=All"
    return lambda server: server.patch(path, change)


def passing_on(kubectl: Kubectl, job: str = JOB) -> dict[str, Attempt]:
    """Each way to give the rights of a job's sidecar to the accomplice, or to widen them."""
    roles, bindings = (f"/apis/{RBAC}/v1/namespaces/{kubectl.namespace}/{kind}" for kind in ("roles", "rolebindings"))
    account = f"{job}{SUFFIX}"
    role, binding = granted(ACCOMPLICE, [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}])
    to_the_sidecars = {**binding, "roleRef": {**binding["roleRef"], "name": account}}
    renamed = {**to_the_sidecars, "metadata": {"name": account}}
    tokens = f"/api/v1/namespaces/{kubectl.namespace}/serviceaccounts/{ACCOMPLICE}/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    return {
        "patch the binding": lambda server: server.patch(f"{bindings}/{account}", {"subjects": binding["subjects"]}),
        "apply the binding": lambda server: server.apply(f"{bindings}/{account}", renamed),
        "patch the role": lambda server: server.patch(f"{roles}/{account}", {"rules": role["rules"]}),
        "make another binding": lambda server: server.create(bindings, to_the_sidecars),
        "make another role": lambda server: server.create(roles, role),
        "delete the binding": lambda server: server.delete(f"{bindings}/{account}", {}),
        "take the other's token": lambda server: server.create(tokens, request),
    }


@pytest.mark.core
@pytest.mark.parametrize("thief", THIEVES)
def test_no_account_of_a_job_passes_its_rights_on(stolen: Kubectl, thief: str) -> None:
    """By RBAC alone: no policy of the platform kit is there."""
    before = stolen.get("rolebinding", f"{JOB}{SUFFIX}")["subjects"]
    done = [name for name, attempt in passing_on(stolen).items() if not refused(stolen, thief, attempt)]
    assert done == []
    assert stolen.get("rolebinding", f"{JOB}{SUFFIX}")["subjects"] == before
    assert "cannot patch" in refused(stolen, ACCOMPLICE, patch_job(stolen, TEMPLATE))


@pytest.mark.core
@pytest.mark.usefixtures("guard")
def test_the_guard_holds_against_stolen_accounts(stolen: Kubectl) -> None:
    """What each must change it may; another pod template, from which the operator makes pods, none and nobody else."""
    assert refused(stolen, "sidecar", patch_job(stolen, REPLICAS)) == ""
    assert refused(stolen, "runner", patch_job(stolen, {"spec": {"runPolicy": {"suspend": False}}})) == ""
    for thief in (*THIEVES, ACCOMPLICE):
        assert refused(stolen, thief, patch_job(stolen, TEMPLATE)), thief
        assert all(refused(stolen, thief, attempt) for attempt in passing_on(stolen).values()), thief


@pytest.mark.core
@pytest.mark.usefixtures("guard")
def test_what_the_right_to_patch_a_binding_would_be_worth(stolen: Kubectl) -> None:
    """Why the sidecar has it not: with it, as it had it once, the accomplice writes the template past the guard."""
    account = f"{JOB}{SUFFIX}"
    own = {"apiGroups": [RBAC], "resources": ["rolebindings"], "resourceNames": [account], "verbs": ["get", "patch"]}
    role, binding = granted("once", [own])
    binding["subjects"] = [{"kind": "ServiceAccount", "name": account}]
    subjects = [{"kind": "ServiceAccount", "name": one, "namespace": NAMESPACE} for one in (account, ACCOMPLICE)]
    path = f"/apis/{RBAC}/v1/namespaces/{NAMESPACE}/rolebindings/{account}"
    stolen.apply([role, binding])
    try:
        waiting.until(
            "the API server lets the sidecar bind another account",
            lambda: not refused(stolen, "sidecar", lambda server: server.patch(path, {"subjects": subjects})),
            within_seconds=30,
        )
        waiting.until(
            "the guard does not know that account",
            lambda: not refused(stolen, ACCOMPLICE, patch_job(stolen, TEMPLATE)),
            within_seconds=30,
        )
    finally:
        stolen("delete", "role,rolebinding", "once")
        stolen.patch("rolebinding", account, {"subjects": subjects[:1]})
        waiting.until(
            "the accomplice has lost it",
            lambda: refused(stolen, ACCOMPLICE, patch_job(stolen, {})),
            within_seconds=30,
        )


def test_a_token_that_is_stolen_from_a_job_that_trains(cluster: Site, namespace: Kubectl) -> None:
    """It is in the sidecar's container alone. It passes nothing on, and the job goes on."""
    namespace.apply([{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOMPLICE}}])
    job = start(cluster, namespace, "launch")
    job.wait_size(SIZE)
    (launcher,) = (one["metadata"]["name"] for one in job.pods(Role.LAUNCHER))
    worker = job.pods(Role.WORKER)[0]["metadata"]["name"]
    for pod, container in ((launcher, "launcher"), (worker, "worker")):
        found = namespace("exec", pod, "-c", container, "--", "sh", "-c", f"test -e {TOKEN} && echo there || echo none")
        assert found.strip() == "none", f"{pod} {container}"
    token = namespace("exec", launcher, "-c", "discovery", "--", "cat", TOKEN).strip()
    assert answer(namespace, token, patch_job(namespace, REPLICAS, job.name)) == "", "it is the sidecar's token"
    ways = passing_on(namespace, job.name)
    assert [name for name, attempt in ways.items() if not answer(namespace, token, attempt)] == []
    job.wait_steps(10)
    assert not job.account.skipped()


@pytest.mark.core
def test_rights_go_with_a_job_that_was_submitted_and_are_found_of_one_that_was_applied(
    cluster: Site, namespace: Kubectl
) -> None:
    """`submit` as somebody who has the rights that `doctor` asks for and no other."""
    jobs.priority_classes(cluster)
    described = description(cluster, namespace)
    account, ann = f"{JOB}{SUFFIX}", "stolen-ann"
    granting = [
        {"apiGroups": [right.group], "resources": [right.resource], "verbs": [right.verb]} for right in NEEDED_RIGHTS
    ]
    role, binding = granted("people", granting)
    binding["subjects"] = [{"apiGroup": RBAC, "kind": "User", "name": ann}]
    namespace.apply([role, binding])
    waiting.until(
        "the rights are in force",
        lambda: ("rights", Level.ERROR) not in bad(examined(namespace, impersonate=ann)),
        within_seconds=30,
    )

    call(namespace, "submit", "-", "--as", ann, given=yaml.safe_dump(described))
    uid = namespace.get("mpijob", JOB)["metadata"]["uid"]
    for kind in ("role", "rolebinding"):
        assert [one["uid"] for one in namespace.get(kind, account)["metadata"]["ownerReferences"]] == [uid]
    call(namespace, "submit", "-", "--diff", "--as", ann, given=yaml.safe_dump(described))
    namespace("delete", "mpijob", JOB, "--wait=true")
    waiting.until(
        "the rights are gone",
        lambda: not namespace.find("role", account) and not namespace.find("rolebinding", account),
        within_seconds=60,
        seen=lambda: str(owned_by_nobody(namespace)),
    )

    namespace.apply(jobs.generate(described))
    assert ("left-behind", Level.WARNING) not in bad(examined(namespace))
    namespace("delete", "mpijob", JOB, "--wait=true")
    found = {one.check: one.verdict for one in examined(namespace)}["left-behind"]
    assert found.level is Level.WARNING
    assert found.fix == f"hvd-elastic delete {JOB} -n {namespace.namespace}"
    assert {one.check: one.verdict for one in examined(namespace, impersonate=ann)}["left-behind"].level is Level.OK
    call(namespace, "delete", JOB, "--yes")
    waiting.until(
        "nothing of the job is left behind",
        lambda: not any(JOB in one for one in owned_by_nobody(namespace)),
        within_seconds=60,
        seen=lambda: str(owned_by_nobody(namespace)),
    )
    assert ("left-behind", Level.WARNING) not in bad(examined(namespace))
