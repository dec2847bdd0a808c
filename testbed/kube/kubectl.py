"""kubectl of the cluster's version, and the few things that every test asks of it."""

import json
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from testbed.kube import waiting
from testbed.kube.errors import ClusterError


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubectl:
    """A kubeconfig and a namespace."""

    program: Path
    kubeconfig: Path
    namespace: str = "default"

    def within(self, namespace: str) -> "Kubectl":
        """Return the same for another namespace."""
        return replace(self, namespace=namespace)

    def __call__(self, *arguments: str, stdin: str | None = None, within_seconds: float = 60) -> str:
        """Run kubectl; return what it prints.

        Raises:
            ClusterError: it failed; the message is its own.

        """
        done = subprocess.run(
            self.argv(*arguments), input=stdin, text=True, capture_output=True, check=False, timeout=within_seconds
        )
        if done.returncode:
            raise ClusterError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def argv(self, *arguments: str) -> list[str]:
        """Return the command line, for a caller that runs it itself."""
        # Said, the namespace is a fence: kubectl refuses manifests for another. The default one is left unsaid.
        fence = [] if self.namespace == "default" else [f"--namespace={self.namespace}"]
        # What a cluster serves is remembered by its address, which the next cluster of this machine has as well.
        cache = f"--cache-dir={self.kubeconfig.parent / 'cache'}"
        return [str(self.program), f"--kubeconfig={self.kubeconfig}", cache, *fence, *arguments]

    def apply(self, manifests: str | Iterable[dict[str, Any]]) -> str:
        """Apply YAML, or objects."""
        text = manifests if isinstance(manifests, str) else as_list(manifests)
        return self("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """Return one object."""
        found: dict[str, Any] = json.loads(self("get", kind, name, "-o", "json"))
        return found

    def find(self, kind: str, name: str) -> dict[str, Any] | None:
        """Return one object, or None if there is none."""
        text = self("get", kind, name, "-o", "json", "--ignore-not-found")
        found: dict[str, Any] | None = json.loads(text) if text.strip() else None
        return found

    def list(self, kind: str, *, selector: str = "", everywhere: bool = False) -> list[dict[str, Any]]:
        """Return all objects of a kind."""
        where = ["--all-namespaces"] if everywhere else []
        items: list[dict[str, Any]] = json.loads(self("get", kind, "-o", "json", f"--selector={selector}", *where))[
            "items"
        ]
        return items

    def patch(self, kind: str, name: str, value: Any, *, subresource: str = "", how: str = "merge") -> None:
        """Patch one object (`how`: merge, strategic or json)."""
        part = [f"--subresource={subresource}"] if subresource else []
        self("patch", kind, name, f"--type={how}", f"--patch={json.dumps(value)}", *part)

    def wait(
        self,
        kind: str,
        name: str,
        *,
        condition: str,
        within_seconds: float,
        seen: Callable[[], str] = lambda: "",
    ) -> None:
        """Wait for a condition of status to be True."""

        def true() -> bool:
            found = self.find(kind, name)
            return found is not None and condition_of(found, condition) == "True"

        waiting.until(
            f"{kind} {name} is {condition}", true, within_seconds=within_seconds, every_seconds=0.3, seen=seen
        )


def condition_of(item: dict[str, Any], kind: str) -> str | None:
    """Return the value of a condition, None where it is not said."""
    conditions = item.get("status", {}).get("conditions") or []
    return next((found["status"] for found in conditions if found["type"] == kind), None)


def as_list(items: Iterable[dict[str, Any]]) -> str:
    """Return one List object, as JSON."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": [*items]})
