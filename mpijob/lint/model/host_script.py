"""The host discovery script of a job: where it comes from, and its text where the stream holds it."""

import posixpath
import re
import shlex
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from hvd_elastic.mpijob.contract import RUN_DIR
from hvd_elastic.mpijob.lint.document.view import Path, View
from hvd_elastic.mpijob.lint.model.linted_job import OPERATOR_SCRIPT, LintedJob, Version

MAX_LINES: Final = 2_000
_ECHO: Final = re.compile(r"\s*(?:echo|printf)\s+(?P<rest>.*)")
_API_CALL: Final = re.compile(r"\bkubectl\b|\bkubernetes\b|/api/v1/|KUBERNETES_SERVICE_HOST|\bcurl\b|\bwget\b")


class Origin(StrEnum):
    """Who provides the script."""

    SIDECAR = "written by the discovery sidecar"
    OPERATOR = "the operator's ConfigMap"
    CONFIG_MAP = "a ConfigMap"
    OTHER = "the image or another volume"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostScript:
    """What `--host-discovery-script` names."""

    path: Path
    """Where it is named."""
    file: str
    """The file in the launcher's container."""
    interpreted: bool
    """An interpreter stands before it, so that it need not be executable."""
    origin: Origin
    volume: View
    text: View
    """Its text in a ConfigMap of the stream; an empty view where that is not at hand."""

    @property
    def lines(self) -> tuple[str, ...]:
        """Its lines of code, without comments."""
        raw = (self.text.text or "").splitlines()[:MAX_LINES]
        return tuple(line for line in raw if line.strip() and not line.lstrip().startswith("#"))

    @property
    def static_hosts(self) -> tuple[str, ...]:
        """The lines it prints, if printing literal lines is all it does."""
        printed: list[str] = []
        for line in self.lines:
            match = _ECHO.fullmatch(line)
            if match is None or "$" in line or "`" in line:
                return ()
            printed += _words(match["rest"])
        return tuple(printed)

    @property
    def asks_api(self) -> bool:
        """Whether it asks the API server, or anything else over the network."""
        return any(_API_CALL.search(line) for line in self.lines)


def _words(text: str) -> list[str]:
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    return [word for word in words if word not in ("-e", "-n", "%s\\n")]


def host_script(job: LintedJob) -> HostScript | None:
    """The job's discovery script, or None where it has none."""
    flag = job.script
    if flag is None or not flag.values or not flag.text:
        return None
    words = _words(flag.text)
    file = next((word for word in reversed(words) if "/" in word), words[0] if words else "")
    volume = job.launcher.pod.volume_at(file)
    return HostScript(
        path=flag.values[0].path,
        file=file,
        interpreted=len(words) > 1,
        origin=_origin(file, volume),
        volume=volume,
        text=_text(job, file, volume),
    )


def _origin(file: str, volume: View) -> Origin:
    if file == OPERATOR_SCRIPT:
        return Origin.OPERATOR
    if posixpath.dirname(file) == RUN_DIR:
        return Origin.SIDECAR
    return Origin.CONFIG_MAP if volume.get("configMap").exists else Origin.OTHER


def _text(job: LintedJob, file: str, volume: View) -> View:
    source = volume.get("configMap")
    config_map = job.companions.named("ConfigMap", source.get("name").text, job.namespace)
    mount = job.launcher.pod.main.mount(file)
    key = posixpath.basename(file) if mount.get("subPath").text is None else str(mount.get("subPath").text)
    items = {item.get("path").text: item.get("key").text for item in source.get("items").items()}
    return config_map.get("data", items.get(key) or key)


def prints_no_slots(job: LintedJob) -> bool:
    """Known for certain: the operator's script of v2beta1, or a literal list without a colon."""
    script = host_script(job)
    if script is None:
        return False
    if script.origin is Origin.OPERATOR:
        return job.version is Version.V2BETA1
    return bool(script.static_hosts) and not any(":" in host for host in script.static_hosts)
