"""Reads what the checks judge. What may not be read is noted, and costs only the checks that need it."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from hvd_elastic.client.connection.cluster_client import ClusterClient, ForbiddenError, Json, NotFoundError
from hvd_elastic.client.connection.known_api import CLAIMED_DEVICES, KUEUE, POD_GROUPS, NoSuchGroupError, NotServedError
from hvd_elastic.client.doctor.cluster_facts import ClusterFacts, Fact, Right, ServiceAccount, Webhook
from hvd_elastic.client.doctor.operators import operator_accounts
from hvd_elastic.client.label_selector import selects
from hvd_elastic.discovery.rules.cluster_views import JobView, PodView
from hvd_elastic.discovery.rules.operator_lag import LATE_SECONDS, OperatorLag, OperatorWork, operator_work
from hvd_elastic.mpijob.contract import LABEL_JOB_ROLE, LABEL_MANAGED_BY, LABEL_PART_OF, MANAGED_BY, Role

_AUTHORIZATION: Final = "/apis/authorization.k8s.io/v1"
_RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
_KUEUE_CONFIGURATION: Final = "/api/v1/namespaces/kueue-system/configmaps/kueue-manager-config"
_VOLCANO_CONFIGURATION: Final = "/api/v1/namespaces/volcano-system/configmaps/volcano-scheduler-configmap"
"""As its chart names it (`installer/helm/chart/volcano/templates/scheduler.yaml`)."""
_LOOKED_AT: Final = frozenset({"pods", "mpijobs", "jobs", "*"})
"""Resources without which no job starts."""

_BESIDE_A_JOB: Final = (
    ("serviceaccounts", ""),
    ("configmaps", ""),
    ("roles", "rbac.authorization.k8s.io"),
    ("rolebindings", "rbac.authorization.k8s.io"),
    ("networkpolicies", "networking.k8s.io"),
)
"""Resource and group of each object that every job has (`mpijob.manifests.supporting`)."""

NEEDED_RIGHTS: Final = (
    *(
        Right(verb=verb, resource="mpijobs", group="kubeflow.org")
        for verb in ("create", "get", "list", "watch", "patch", "delete")
    ),
    # Server-side apply is a patch that may create; `submit` looks first what is there.
    *(
        Right(verb=verb, resource=resource, group=group)
        for resource, group in _BESIDE_A_JOB
        for verb in ("create", "get", "patch")
    ),
    Right(verb="get", resource="pods/log"),
    # RBAC lets nobody give a right away that he lacks: what follows is in the Role of the discovery sidecar.
    *(Right(verb=verb, resource="pods") for verb in ("list", "watch", "delete")),
    *(Right(verb=verb, resource="events") for verb in ("list", "create")),
    *(Right(verb=verb, resource="jobs", group="batch") for verb in ("get", "patch")),
)
"""What submitting a job takes, its sidecar's Role among it, and reading its pods and their logs."""
RESUME: Final = Right(verb="update", resource="jobs/status", group="batch")

_T = TypeVar("_T")


class FactReader:
    """Asks one cluster, with one connection."""

    def __init__(self, cluster: ClusterClient, namespace: str, *, sleep: Callable[[float], None] = time.sleep) -> None:
        """`sleep` lets the MPI Operator have its time, where it has something to do."""
        self._cluster, self._namespace, self._sleep = cluster, namespace, sleep
        self._unreadable: dict[Fact, str] = {}

    def read(self) -> ClusterFacts:
        """Everything, in some fifty short requests. Raises ClusterError if the API server cannot be asked at all."""
        # The first question is the only one that must be answered: nobody is forbidden to ask for the version.
        version = self._cluster.ask("GET", "/version")
        now = datetime.now(UTC)
        offset = (version.time - now).total_seconds() if version.time else 0.0

        ask, listed = self._ask, self._listed
        here = f"/api/v1/namespaces/{self._namespace}"
        namespace = ask(Fact.NAMESPACE, lambda: self._cluster.get(here), None)
        mutating, validating = (
            listed(Fact.WEBHOOKS, f"/apis/admissionregistration.k8s.io/v1/{kind}")
            for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
        )
        nothing: tuple[list[Json], list[Json]] = ([], [])
        slices, classes = ask(Fact.CLAIMED_DEVICES, self._claimed_devices, nothing)
        return replace(
            self._operators(str(version.body.get("gitVersion", ""))),
            today=(version.time or now).date(),
            clock_offset_seconds=offset,
            nodes=listed(Fact.NODES, "/api/v1/nodes"),
            priority_classes=listed(Fact.PRIORITY_CLASSES, "/apis/scheduling.k8s.io/v1/priorityclasses"),
            crds={
                one["metadata"]["name"]: one
                for one in listed(Fact.CRDS, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
            },
            daemon_sets=listed(Fact.DAEMON_SETS, "/apis/apps/v1/daemonsets"),
            storage_classes=listed(Fact.STORAGE_CLASSES, "/apis/storage.k8s.io/v1/storageclasses"),
            csi_drivers=listed(Fact.CSI_DRIVERS, "/apis/storage.k8s.io/v1/csidrivers"),
            namespace_object=namespace,
            quotas=listed(Fact.QUOTAS, f"{here}/resourcequotas"),
            limit_ranges=listed(Fact.LIMIT_RANGES, f"{here}/limitranges"),
            webhooks=ask(Fact.WEBHOOKS, lambda: self._webhooks([*mutating, *validating], namespace), []),
            mutating_webhooks=mutating,
            rights=ask(Fact.RIGHTS, lambda: {right: self.may(right) for right in NEEDED_RIGHTS}, {}),
            mpijobs=self._mpijobs(),
            waiting_jobs=self.read_waiting_jobs(),
            role_bindings=listed(
                Fact.ROLE_BINDINGS,
                f"{_RBAC}/namespaces/{self._namespace}/rolebindings",
                labelSelector=f"{LABEL_MANAGED_BY}={MANAGED_BY},{LABEL_PART_OF}",
            ),
            resource_slices=slices,
            device_classes=classes,
            workers=self._workers(),
            local_queues=ask(Fact.QUEUES, lambda: self._of_kueue(f"/namespaces/{self._namespace}/localqueues"), []),
            cluster_queues=ask(Fact.QUEUES, lambda: self._of_kueue("/clusterqueues"), []),
            validating_policies=self._policies("validatingadmissionpolicies") or (),
            mutating_policies=self._policies("mutatingadmissionpolicies"),
            mutating_bindings=self._policies("mutatingadmissionpolicybindings") or (),
            pod_groups=ask(Fact.POD_GROUPS, self._pod_groups, []),
            volcano_configuration=ask(Fact.VOLCANO, lambda: self._text_of(_VOLCANO_CONFIGURATION), ""),
            kueue_configuration=ask(Fact.CONFIG_MAPS, lambda: self._text_of(_KUEUE_CONFIGURATION), ""),
        )

    def read_operators(self) -> ClusterFacts:
        """Who drives MPIJobs, and whether it may resume one. Raises ClusterError."""
        version = self._ask(Fact.VERSION, lambda: str(self._cluster.get("/version").get("gitVersion", "")), "")
        return self._operators(version)

    def _operators(self, version: str) -> ClusterFacts:
        roles = {one["metadata"]["name"]: one for one in self._listed(Fact.CLUSTER_ROLES, f"{_RBAC}/clusterroles")}
        bindings = self._listed(Fact.CLUSTER_ROLE_BINDINGS, f"{_RBAC}/clusterrolebindings")
        accounts = operator_accounts(roles, bindings)
        return ClusterFacts(
            namespace=self._namespace,
            version=version,
            deployments=self._listed(Fact.DEPLOYMENTS, "/apis/apps/v1/deployments"),
            cluster_roles=roles,
            cluster_role_bindings=bindings,
            resume_rights=self._ask(Fact.RESUME_RIGHTS, lambda: self._resume_rights(accounts), {}),
            unreadable=self._unreadable,
        )

    def may(self, right: Right) -> bool:
        """Whether the caller may do this in the namespace. Raises ClusterError."""
        return self._allowed("SelfSubjectAccessReview", right, {})

    def _mpijobs(self) -> list[Json]:
        return self._listed(Fact.MPIJOBS, f"/apis/kubeflow.org/v2beta1/namespaces/{self._namespace}/mpijobs")

    def _workers(self) -> list[Json]:
        path = f"/api/v1/namespaces/{self._namespace}/pods"
        return self._listed(Fact.WORKERS, path, labelSelector=f"{LABEL_JOB_ROLE}={Role.WORKER}")

    def _of_kueue(self, path: str) -> list[Json]:
        try:
            return list(self._cluster.list(f"{KUEUE.served_path(self._cluster)}{path}"))
        except NoSuchGroupError:
            return []

    def _policies(self, plural: str) -> Sequence[Json] | None:
        """None: the API server does not serve them, or may not tell of them."""
        path = f"/apis/admissionregistration.k8s.io/v1/{plural}"
        return self._ask(Fact.POLICIES, lambda: list(self._cluster.list(path)), None)

    def read_waiting_jobs(self) -> dict[str, OperatorWork]:
        """By name. One look does not tell since when a worker is missing, so there are two where one is."""
        lags = defaultdict[str, OperatorLag](OperatorLag)
        self._see_work(lags, 0.0)
        if any(lag.work.pods for lag in lags.values()):
            self._sleep(LATE_SECONDS)
            self._see_work(lags, LATE_SECONDS)
        return {name: lag.work for name, lag in lags.items() if lag.wait_seconds(LATE_SECONDS) >= LATE_SECONDS}

    def _see_work(self, lags: Mapping[str, OperatorLag], now: float) -> None:
        pods = defaultdict[str, list[PodView]](list)
        for pod in map(PodView.from_json, self._workers()):
            pods[pod.owner_uid].append(pod)
        for job in self._mpijobs():
            lags[job["metadata"]["name"]].see(operator_work(JobView.from_json(job), pods[job["metadata"]["uid"]]), now)

    def _ask(self, fact: Fact, question: Callable[[], _T], otherwise: _T) -> _T:
        try:
            return question()
        except (ForbiddenError, NotServedError) as error:
            self._unreadable[fact] = str(error)
            return otherwise
        except NotFoundError:
            return otherwise

    def _listed(self, fact: Fact, path: str, **query: str) -> list[Json]:
        def question() -> list[Json]:
            try:
                return list(self._cluster.list(path, **query))
            except NotFoundError as error:  # a list is there, empty or not, wherever its API is served
                raise NotServedError(f"the API server does not serve {path}") from error

        return self._ask(fact, question, [])

    def _resume_rights(self, accounts: Iterable[ServiceAccount]) -> dict[ServiceAccount, bool]:
        return {account: self._allowed("SubjectAccessReview", RESUME, _subject(account)) for account in accounts}

    def _allowed(self, kind: str, right: Right, subject: Json) -> bool:
        resource, _, subresource = right.resource.partition("/")
        attributes = {
            "namespace": self._namespace,
            "verb": right.verb,
            "group": right.group,
            "resource": resource,
            "subresource": subresource,
        }
        question = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": kind,
            "spec": {**subject, "resourceAttributes": attributes},
        }
        answer = self._cluster.create(f"{_AUTHORIZATION}/{kind.lower()}s", question)
        return bool(answer["status"].get("allowed"))

    def _claimed_devices(self) -> tuple[list[Json], list[Json]]:
        try:
            root = CLAIMED_DEVICES.served_path(self._cluster)
        except NoSuchGroupError:
            return [], []
        return list(self._cluster.list(f"{root}/resourceslices")), list(self._cluster.list(f"{root}/deviceclasses"))

    def _text_of(self, config_map: str) -> str:
        return "\n".join(map(str, (self._cluster.get(config_map).get("data") or {}).values()))

    def _pod_groups(self) -> list[Json]:
        try:
            root = POD_GROUPS.served_path(self._cluster)
        except NotServedError:  # the gate is off
            return []
        return list(self._cluster.list(f"{root}/namespaces/{self._namespace}/podgroups"))

    def _webhooks(self, configurations: Iterable[Json], namespace: Json | None) -> list[Webhook]:
        labels = namespace["metadata"].get("labels", {}) if namespace else {}
        return [
            Webhook(
                name=webhook["name"],
                resources=frozenset(looked_at),
                service=f"{service['namespace']}/{service['name']}",
                ready_addresses=self._ready_addresses(service["namespace"], service["name"]),
            )
            for configuration in configurations
            for webhook in configuration.get("webhooks", ())
            if (service := webhook["clientConfig"].get("service"))
            and (looked_at := _LOOKED_AT & _resources(webhook))
            and webhook.get("failurePolicy", "Fail") == "Fail"
            and selects(webhook.get("namespaceSelector") or {}, labels)
        ]

    def _ready_addresses(self, namespace: str, service: str) -> int:
        slices: Iterable[dict[str, Any]] = self._cluster.list(
            f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices",
            labelSelector=f"kubernetes.io/service-name={service}",
        )
        return sum(
            len(endpoint["addresses"])
            for one in slices
            for endpoint in one.get("endpoints") or ()
            if endpoint.get("conditions", {}).get("ready") is not False
        )


def _resources(webhook: Json) -> set[str]:
    return {str(resource) for rule in webhook.get("rules", ()) for resource in rule.get("resources", ())}


def _subject(account: ServiceAccount) -> Json:
    """A ServiceAccount as RBAC sees it."""
    return {
        "user": f"system:serviceaccount:{account.namespace}:{account.name}",
        "groups": ["system:serviceaccounts", f"system:serviceaccounts:{account.namespace}"],
    }
