"""What an API server would find wrong with a manifest, by the real schemas and by Pod Security `restricted`.

The schemas are closed: an unknown field is an error, as in strict server-side validation.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import yaml
from jsonschema import Draft7Validator

from tests.mpijob import modules

Manifest = Mapping[str, Any]

_POD_TEMPLATE = "io.k8s.api.core.v1.PodTemplateSpec"
_OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_CRDS = (
    modules.MPI_OPERATOR,
    modules.LEGACY_MPIJOB,
    modules.PYTORCHJOB,
    modules.POD_MONITOR,
    modules.PROMETHEUS_RULE,
    modules.CLUSTER_QUEUE,
    modules.FLAVOR,
)
_LABEL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")
_RBAC_NAME = re.compile(r"(?!\.\.?$)[^/%]+")
"""Any segment of a path (`ValidateRBACName` in Kubernetes' `pkg/apis/rbac/validation`)."""


def errors(manifest: Manifest, *crds: modules.ModuleFile) -> list[str]:
    """Everything that is wrong with a manifest. `crds`: of kinds that no job of ours brings."""
    known = (manifest["apiVersion"], manifest["kind"])
    validator = validators().get(known) or _foreign(crds).get(known)
    if validator is None:
        return [f"{known}: no such kind"]
    found = [_shown(error) for error in validator.iter_errors(manifest)]
    found += [_shown(error) for error in _definition(_OBJECT_META).iter_errors(manifest["metadata"])]
    for path, template in templates(manifest):
        found += [f"{path}.{_shown(error)}" for error in _definition(_POD_TEMPLATE).iter_errors(template)]
    return found + list(_names(manifest))


def templates(manifest: Manifest) -> Iterator[tuple[str, Manifest]]:
    """Pod templates of a job, by role."""
    for key in ("mpiReplicaSpecs", "pytorchReplicaSpecs"):
        for role, replica in manifest.get("spec", {}).get(key, {}).items():
            yield role, replica["template"]


def restricted(pod: Manifest) -> list[str]:
    """What Pod Security `restricted` would refuse in a pod's spec (kubernetes.io/docs/concepts/security)."""
    security = pod.get("securityContext", {})
    found = [key for key in ("hostNetwork", "hostPID", "hostIPC") if pod.get(key)]
    allowed = {
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "persistentVolumeClaim",
        "projected",
        "secret",
    }
    found += [f"volume {volume['name']}" for volume in pod.get("volumes", []) if not allowed & set(volume)]
    for container in (*pod.get("initContainers", []), *pod["containers"]):
        own = container.get("securityContext", {})
        checks = {
            "allowPrivilegeEscalation": own.get("allowPrivilegeEscalation") is False,
            "capabilities": own.get("capabilities", {}).get("drop") == ["ALL"] and not own["capabilities"].get("add"),
            "privileged": not own.get("privileged"),
            "runAsNonRoot": own.get("runAsNonRoot", security.get("runAsNonRoot")) is True,
            "runAsUser": own.get("runAsUser", security.get("runAsUser")) != 0,
            "seccompProfile": own.get("seccompProfile", security.get("seccompProfile", {})).get("type")
            in {"RuntimeDefault", "Localhost"},
            "hostPort": not any(port.get("hostPort") for port in container.get("ports", [])),
        }
        found += [f"{container['name']}: {name}" for name, passed in checks.items() if not passed]
    return found


@cache
def validators() -> Mapping[tuple[str, str], Draft7Validator]:
    """A validator for each kind, by apiVersion and kind."""
    found = {}
    for name, definition in _definitions().items():
        for kind in definition.get("x-kubernetes-group-version-kind", []):
            version = "/".join(filter(None, (kind["group"], kind["version"])))
            found[version, kind["kind"]] = _definition(name)
    for crd in _CRDS:
        found |= validators_of(crd)
    return found


def validators_of(crd: modules.ModuleFile) -> Mapping[tuple[str, str], Draft7Validator]:
    """A validator for each version of a CRD, by apiVersion and kind."""
    spec = yaml.load(crd.local().read_text(), Loader=yaml.CSafeLoader)["spec"]
    found = {}
    for version in spec["versions"]:
        schema = version["schema"]["openAPIV3Schema"]
        _close(schema)
        found[f"{spec['group']}/{version['name']}", spec["names"]["kind"]] = Draft7Validator(schema)
    return found


@cache
def _foreign(crds: tuple[modules.ModuleFile, ...]) -> Mapping[tuple[str, str], Draft7Validator]:
    return {kind: validator for crd in crds for kind, validator in validators_of(crd).items()}


@cache
def _definition(name: str) -> Draft7Validator:
    return Draft7Validator({"$ref": f"#/definitions/{name}", "definitions": _definitions()})


@cache
def _definitions() -> dict[str, Any]:
    definitions: dict[str, Any] = json.loads(modules.KUBERNETES.local().read_text())["definitions"]
    for definition in definitions.values():
        _close(definition)
    return definitions


def _close(schema: Any) -> None:
    """Refuse fields that a schema does not name, and translate Kubernetes' own keywords to JSON Schema."""
    if isinstance(schema, list):
        for item in schema:
            _close(item)
    if not isinstance(schema, dict):
        return
    if schema.get("format") == "int-or-string":
        schema["type"] = ["string", "integer"]
    if schema.get("x-kubernetes-int-or-string"):
        schema.pop("type", None)
    if isinstance(schema.get("properties"), dict) and "additionalProperties" not in schema:
        schema["additionalProperties"] = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    for value in list(schema.values()):
        _close(value)


def _names(manifest: Manifest) -> Iterator[str]:
    """What the schemas leave to the API server's code: names, labels, and names that appear twice."""
    allowed = _RBAC_NAME if manifest["apiVersion"].startswith("rbac.authorization.k8s.io/") else _NAME
    if not allowed.fullmatch(manifest["metadata"]["name"]):
        yield f"metadata.name: {manifest['metadata']['name']!r}"
    labelled = [manifest["metadata"], *(template["metadata"] for _, template in templates(manifest))]
    for labels in (meta.get("labels", {}) for meta in labelled):
        yield from (f"label {key}: {value!r}" for key, value in labels.items() if not _LABEL.fullmatch(value))
    for role, template in templates(manifest):
        pod = template["spec"]
        volumes = [volume["name"] for volume in pod.get("volumes", [])]
        containers = (*pod.get("initContainers", []), *pod["containers"])
        yield from (f"{role}: volume {name} twice" for name in _twice(volumes))
        for container in containers:
            where = f"{role}.{container['name']}"
            mounts = container.get("volumeMounts", [])
            yield from (
                f"{where}: env {name} twice" for name in _twice([item["name"] for item in container.get("env", [])])
            )
            yield from (f"{where}: mount {path} twice" for path in _twice([mount["mountPath"] for mount in mounts]))
            yield from (f"{where}: no volume {m['name']}" for m in mounts if m["name"] not in volumes)
            ports = container.get("ports", [])
            yield from (f"{where}: port {name} twice" for name in _twice([port["name"] for port in ports]))
            yield from (f"{where}: port {port['name']} too long" for port in ports if len(port["name"]) > 15)


def _twice(names: list[str]) -> set[str]:
    return {name for name in names if names.count(name) > 1}


def _shown(error: Any) -> str:
    return f"{'.'.join(map(str, error.absolute_path))}: {error.message[:300]}"
