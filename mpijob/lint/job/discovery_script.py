"""The host discovery script of a job: who provides it, and its text if the stream has it."""

import posixpath
import re
import shlex
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from hvd_elastic.mpijob.contract import RUN_DIR
from hvd_elastic.mpijob.lint.document.manifest_view import ManifestView, Path
from hvd_elastic.mpijob.lint.job.linted_job import OPERATOR_SCRIPT, LintedJob, MPIJobVersion

MAX_LINES: Final = 2_000
_ECHO: Final = re.compile(r"\s*(?:echo|printf)\s++(?P<rest>.*)")
_API_CALL: Final = re.compile(r"\bkubectl\b|\bkubernetes\b|/api/v1/|KUBERNETES_SERVICE_HOST|\bcurl\b|\bwget\b")


class ScriptOrigin(StrEnum):
    """Who provides the script."""

    SIDECAR = "written by the discovery sidecar"
    OPERATOR = "the operator's ConfigMap"
    CONFIG_MAP = "a ConfigMap"
    OTHER = "the image or another volume"


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveryScript:
    """The script that `--host-discovery-script` names."""

    path: Path
    """The place in the manifest that names it."""
    file: str
    """The file's path in the launcher's container."""
    interpreted: bool
    """Whether the flag names an interpreter before the file, so that the file need not be executable."""
    origin: ScriptOrigin
    volume: ManifestView
    text: ManifestView
    """Its text in a ConfigMap of the stream; an empty view if the stream does not have it."""

    @property
    def lines(self) -> tuple[str, ...]:
        """Its lines of code, without comments and empty lines; at most MAX_LINES lines are read."""
        raw = (self.text.text or "").splitlines()[:MAX_LINES]
        return tuple(line for line in raw if line.strip() and not line.lstrip().startswith("#"))

    @property
    def static_hosts(self) -> tuple[str, ...]:
        """The lines it prints, if all it does is print literal lines; otherwise empty."""
        printed: list[str] = []
        for line in self.lines:
            match = _ECHO.fullmatch(line)
            if match is None or "$" in line or "`" in line:
                return ()
            printed += _words(match["rest"])
        return tuple(printed)

    @property
    def asks_api(self) -> bool:
        """Whether it sends requests to the API server or to another network service."""
        return any(_API_CALL.search(line) for line in self.lines)


def _words(text: str) -> list[str]:
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    return [word for word in words if word not in ("-e", "-n", "%s\\n")]


def discovery_script(job: LintedJob) -> DiscoveryScript | None:
    """The job's discovery script, or None if it has none."""
    flag = job.discovery_flag
    if flag is None or not flag.values or not flag.text:
        return None
    words = _words(flag.text)
    file = next((word for word in reversed(words) if "/" in word), words[0] if words else "")
    volume = job.launcher.pod.volume_at(file)
    return DiscoveryScript(
        path=flag.values[0].path,
        file=file,
        interpreted=len(words) > 1,
        origin=_origin(file, volume),
        volume=volume,
        text=_text(job, file, volume),
    )


def _origin(file: str, volume: ManifestView) -> ScriptOrigin:
    if file == OPERATOR_SCRIPT:
        return ScriptOrigin.OPERATOR
    if posixpath.dirname(file) == RUN_DIR:
        return ScriptOrigin.SIDECAR
    return ScriptOrigin.CONFIG_MAP if volume.get("configMap").exists else ScriptOrigin.OTHER


def _text(job: LintedJob, file: str, volume: ManifestView) -> ManifestView:
    source = volume.get("configMap")
    config_map = job.related_objects.named("ConfigMap", source.get("name").text, job.namespace)
    mount = job.launcher.pod.main.mount(file)
    key = posixpath.basename(file) if mount.get("subPath").text is None else str(mount.get("subPath").text)
    items = {item.get("path").text: item.get("key").text for item in source.get("items").items()}
    return config_map.get("data", items.get(key) or key)


def prints_no_slots(job: LintedJob) -> bool:
    """Whether the script is known to print no slots: the operator's in v2beta1, or literal hosts without a colon."""
    script = discovery_script(job)
    if script is None:
        return False
    if script.origin is ScriptOrigin.OPERATOR:
        return job.version is MPIJobVersion.V2BETA1
    return bool(script.static_hosts) and not any(":" in host for host in script.static_hosts)
