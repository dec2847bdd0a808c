"""Names and labels as Kubernetes takes them (Kubernetes 1.34, `apimachinery/pkg/util/validation`).

Each function returns the text, or raises ValueError with what a name of that kind is like.
"""

import re
from typing import Final

_DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?")
_LABEL_VALUE: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
LABEL_KEY: Final = re.compile(r"([a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


def dns_label(value: str) -> str:
    """Name of a container, a volume or a Service."""
    if not _DNS_LABEL.fullmatch(value):
        raise ValueError("is not a DNS label: lower-case letters, digits and '-', at most 63 characters")
    return value


def object_name(value: str) -> str:
    """Name of most other objects."""
    if len(value) > 253 or not _SUBDOMAIN.fullmatch(value):
        raise ValueError("is not the name of a Kubernetes object: lower-case letters, digits, '-' and '.'")
    return value


def label_value(value: str) -> str:
    """What a label, and so a node selector, may have."""
    if not _LABEL_VALUE.fullmatch(value):
        raise ValueError(
            "is not a label value: at most 63 letters, digits, '-', '_' and '.', a letter or digit at both ends"
        )
    return value


def label_key(value: str) -> str:
    """What a label, an annotation or a taint may be called."""
    if not LABEL_KEY.fullmatch(value):
        raise ValueError("is not a label key: [DNS name/]NAME of letters, digits, '-', '_' and '.'")
    return value
