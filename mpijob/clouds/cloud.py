"""The clouds that are known, and the two ways in which they sell machines."""

from enum import StrEnum


class Cloud(StrEnum):
    """The cloud whose node labels and taints the manifests use."""

    ANY = "any"
    EKS = "eks"
    GKE = "gke"
    AKS = "aks"


class Capacity(StrEnum):
    """What kind of nodes workers run on."""

    SPOT = "spot"
    ON_DEMAND = "on-demand"
    PREFER_SPOT = "prefer-spot"
