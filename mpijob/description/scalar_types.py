"""Types of single values in a job description: what a user may write, and what it becomes."""

import re
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from hvd_elastic.mpijob.description.object_names import LABEL_KEY, dns_label, label_key, label_value, object_name
from hvd_elastic.system import quantity

_DURATION: Final = re.compile(r"([0-9]{1,9})(s|m|h|d)?")
_UNIT_SECONDS: Final = {None: 1, "s": 1, "m": 60, "h": 3600, "d": 86400}

_JOB_NAME: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_ENV_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HUGE_PAGES: Final = re.compile(r"hugepages-[1-9][0-9]{0,9}[KMG]i")
_IMAGE: Final = re.compile(
    r"[a-zA-Z0-9][-a-zA-Z0-9.]*(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*(:[A-Za-z0-9_][-A-Za-z0-9_.]{0,127})?"
    r"(@sha256:[0-9a-f]{64})?"
)


def _seconds(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("is not a duration: write seconds, or a whole number with s, m, h or d: 90, 10m, 2h")
    return int(match[1]) * _UNIT_SECONDS[match[2]]


def _seconds_or_auto(value: object) -> int | str:
    if value == "auto":
        return "auto"
    try:
        return _seconds(value)
    except ValueError as error:
        raise ValueError(f"{error}, or auto") from None


def _job_name(value: str) -> str:
    if len(value) > 52 or not _JOB_NAME.fullmatch(value):
        raise ValueError("is not a job name: lower-case letters, digits and '-', a letter first, at most 52 characters")
    return value


def _extended_resource(value: str) -> str:
    """By the API server's rule (Kubernetes 1.34, `pkg/apis/core/v1/helper/helpers.go`, `IsExtendedResourceName`)."""
    domain, slash, _ = value.partition("/")
    if not slash or not LABEL_KEY.fullmatch(value) or f"{domain}/".endswith("kubernetes.io/"):
        raise ValueError("is not an extended resource: write DOMAIN/NAME as nodes offer it, such as amd.com/gpu")
    if value.startswith("requests."):
        raise ValueError("is not an extended resource: its name must not begin with 'requests.'")
    return value


def _resource_name(value: str) -> str:
    if value == "ephemeral-storage" or _HUGE_PAGES.fullmatch(value):
        return value
    if value in {"cpu", "memory"}:
        raise ValueError(f"is what workers.{value} asks for: set that key")
    if "/" not in value:
        raise ValueError("is not a resource: write DOMAIN/NAME as nodes offer it, hugepages-SIZE or ephemeral-storage")
    return _extended_resource(value)


def _env_name(value: str) -> str:
    if not _ENV_NAME.fullmatch(value):
        raise ValueError("is not the name of an environment variable: letters, digits and '_', no digit first")
    return value


def _image(value: str) -> str:
    if len(value) > 512 or not _IMAGE.fullmatch(value):
        raise ValueError("is not an image reference: write [REGISTRY/]NAME[:TAG][@sha256:DIGEST], without spaces")
    return value


def _passable(value: str) -> str:
    """Text that execve and a manifest can carry: it has no NUL and no half of a surrogate pair."""
    if "\0" in value:
        raise ValueError("has a NUL character, which cannot be passed to a process")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise ValueError("is not valid Unicode text")
    return value


def _absolute(value: str) -> str:
    if not value.startswith("/") or ".." in value.split("/") or ":" in value:
        raise ValueError("is not an absolute path in the container: start with '/', without '..' and ':'")
    return value.rstrip("/") or "/"


def by_name(value: object) -> object:
    """A container's `env`, as Kubernetes writes it, as a mapping; any other value as it is.

    Of two entries with one name the last counts in Kubernetes, too.
    """
    if not isinstance(value, list):
        return value
    if not all(isinstance(entry, dict) and isinstance(entry.get("name"), str) for entry in value):
        return value
    return {entry["name"]: entry.get("value", entry.get("valueFrom", "")) for entry in value}


VALUE_FROM_WAY_OUT: Final = (
    "name a Secret in secrets, which makes variables of all its keys, or write "
    "workers.pod: {spec: {containers: [{name: worker, env: [{name: ..., valueFrom: ...}]}]}}"
)
"""The way out where a variable is to have one key of a Secret, or what else Kubernetes' `valueFrom` can name."""


def _environment(value: object) -> object:
    variables = by_name(value)
    if isinstance(variables, dict):
        for name, content in variables.items():
            if isinstance(content, dict):
                raise ValueError(f"has no plain value for {name}: {VALUE_FROM_WAY_OUT}")  # noqa: TRY004 - pydantic collects ValueErrors
    return variables


Duration = Annotated[
    int,
    BeforeValidator(_seconds),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": "^[0-9]+[smhd]?$"}]}),
]
"""Whole seconds. `10m`, `2h` and `1d` are accepted too."""

AutoDuration = Annotated[
    int | Literal["auto"],
    BeforeValidator(_seconds_or_auto),
    WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": "^([0-9]+[smhd]?|auto)$"}]}
    ),
]
"""A Duration, or `auto`."""

_NUMBER_OR_TEXT: Final = {
    "anyOf": [{"type": "number"}, {"type": "string", "pattern": "^[0-9.]+([a-zA-Z]{0,2}|[eE][0-9]+)$"}]
}
Cpu = Annotated[str, BeforeValidator(quantity.cpu), WithJsonSchema(_NUMBER_OR_TEXT)]
Memory = Annotated[str, BeforeValidator(quantity.memory), WithJsonSchema(_NUMBER_OR_TEXT)]
Quantity = Annotated[str, BeforeValidator(quantity.positive), WithJsonSchema(_NUMBER_OR_TEXT)]

JobName = Annotated[
    str, AfterValidator(_job_name), WithJsonSchema({"type": "string", "pattern": f"^{_JOB_NAME.pattern}$"})
]
DnsLabel = Annotated[str, AfterValidator(dns_label)]
ObjectName = Annotated[str, AfterValidator(object_name)]
ExtendedResource = Annotated[str, AfterValidator(_extended_resource)]
ResourceName = Annotated[str, AfterValidator(_resource_name)]
LabelKey = Annotated[str, AfterValidator(label_key)]
LabelValue = Annotated[str, AfterValidator(label_value)]
EnvName = Annotated[str, AfterValidator(_env_name)]
Image = Annotated[str, AfterValidator(_image)]
Text = Annotated[str, AfterValidator(_passable)]
ContainerPath = Annotated[str, AfterValidator(_passable), AfterValidator(_absolute)]

PodTemplate = dict[str, Any]
"""A part of a pod template, as Kubernetes writes it. `checks/pod_checks.py` says what it may hold, and `pod_schema.py`
what editors are told of it.
"""
Environment = Annotated[
    dict[EnvName, Text],
    BeforeValidator(_environment),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "object", "additionalProperties": {"type": "string"}},
                {"type": "array", "items": {"type": "object", "required": ["name"]}},
            ]
        }
    ),
]
"""Variables by name. A container's `env` in Kubernetes' own form is taken, too."""
