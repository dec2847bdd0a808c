"""A controller manager as a process of this machine, with its own manifests but for its Deployment and certificates.

The API server reaches webhooks by a service address, and no kube-proxy translates any on this machine: it is told where
the process listens.
"""

import base64
import contextlib
import json
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from testbed.kube import addons
from testbed.kube.certificates import Authority
from testbed.kube.cluster import Cluster
from testbed.kube.controlplane import free_ports


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerManager:
    """A program of controller-runtime, and what it needs in the cluster."""

    name: str
    """Of the process; before the names of its webhooks, and of its ConfigMap."""
    namespace: str
    account: str
    program: Path
    flags: Sequence[str] = ()
    configuration: Mapping[str, Any]
    """Beside ports."""
    certificates: Path
    """Where it looks for a certificate, in /etc or /tmp. It sees a folder of its own there, and no other."""
    crds: Sequence[Path]
    roles: Sequence[dict[str, Any]]
    """With their bindings."""
    webhooks: Path
    served: Collection[str]
    """Of its webhooks those that are asked: of kinds that this cluster knows."""

    def start(self, machine: Cluster) -> None:
        """Install it; it takes objects up when this returns."""
        plane, kubectl = machine.plane, machine.kubectl
        port, health = free_ports("127.0.0.1", 2)
        server = f"https://127.0.0.1:{port}"
        mounted, own = Path(*self.certificates.parts[:2]), plane.state / self.name
        authority = _certify(own / self.certificates.relative_to(mounted), self.name)
        configuration = self._configuration(port=port, health=health)
        crds = [_converted(crd, server, authority) for crd in self._crds()]
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
        kubectl.apply([*crds, namespace, *self._objects(configuration)])
        for crd in crds:  # a manager that starts before they are served ends
            kubectl.wait(
                "customresourcedefinition", crd["metadata"]["name"], condition="Established", within_seconds=60
            )
        file = plane.state / f"{self.name}.yaml"
        file.write_text(json.dumps(configuration))
        process = plane.daemon(
            self.name,
            *addons.with_folder_at(str(mounted), own),
            str(self.program),
            f"--kubeconfig={addons.as_account(plane, kubectl, self.namespace, self.account)}",
            f"--config={file}",
            *self.flags,
        )
        process.stop()  # one that a killed run of the tests left
        process.start()
        addons.wait_answering(process, f"http://127.0.0.1:{health}/readyz")
        kubectl.apply(self._webhooks(server, authority))

    def stop(self, machine: Cluster) -> None:
        """Remove it with its objects but for its namespace, whose end the next start would have to wait for.

        Also after a start that did not come to its end.
        """
        for item in self._webhooks("", b""):
            machine.kubectl("delete", item["kind"], item["metadata"]["name"], "--ignore-not-found")
        for crd in self._crds():  # a manager takes away its own finalizers
            machine.kubectl("delete", "crd", crd["metadata"]["name"], "--ignore-not-found", within_seconds=120)
        for item in self._objects({}):
            name = item["metadata"]["name"]
            machine.kubectl("delete", item["kind"], name, "--ignore-not-found", f"--namespace={self.namespace}")
        with contextlib.suppress(FileNotFoundError):
            machine.daemon(self.name).end()

    def _configuration(self, *, port: int, health: int) -> dict[str, Any]:
        return {
            "kind": "Configuration",
            "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
            "metrics": {"bindAddress": "0"},
            "leaderElection": {"leaderElect": False},
            **self.configuration,
            "webhook": {"host": "127.0.0.1", "port": port, **self.configuration.get("webhook", {})},
        }

    def _crds(self) -> list[dict[str, Any]]:
        return [yaml.load(file.read_text(), Loader=yaml.CSafeLoader) for file in self.crds]

    def _objects(self, configuration: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Its account and roles, and its configuration where that lies in any cluster: the product looks it up."""
        config_map = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"{self.name}-manager-config", "namespace": self.namespace},
            "data": {"controller_manager_config.yaml": yaml.safe_dump(configuration)},
        }
        return [addons.account(self.namespace, self.account), *self.roles, config_map]

    def _webhooks(self, server: str, root: bytes) -> Iterator[dict[str, Any]]:
        for item in yaml.safe_load_all(self.webhooks.read_text()):
            item["metadata"]["name"] = f"{self.name}-{item['metadata']['name']}"
            item["webhooks"] = [webhook for webhook in item["webhooks"] if webhook["name"] in self.served]
            for webhook in item["webhooks"]:
                path = webhook["clientConfig"]["service"]["path"]
                webhook["clientConfig"] = _client(server + path, root)
            yield item


def _certify(folder: Path, name: str) -> bytes:
    """Make `tls.crt` and `tls.key` of a server on this machine, in a new folder; return their authority's (PEM)."""
    shutil.rmtree(folder, ignore_errors=True)
    authority = Authority.create(folder)
    authority.issue("tls", name, answers_to=("127.0.0.1",))
    return authority.root.read_bytes()


def _client(url: str, root: bytes) -> dict[str, str]:
    """How the API server reaches a webhook whose certificate is of the authority `root` (PEM)."""
    return {"url": url, "caBundle": base64.b64encode(root).decode()}


def _converted(crd: dict[str, Any], server: str, root: bytes) -> dict[str, Any]:
    """Let the manager convert between the versions of a CRD, where there are two."""
    if len(crd["spec"]["versions"]) > 1:
        crd["spec"]["conversion"] = {
            "strategy": "Webhook",
            "webhook": {"clientConfig": _client(f"{server}/convert", root), "conversionReviewVersions": ["v1"]},
        }
    return crd
