"""What NetworkPolicies mean: pure, from the objects of the API to the openings that each pod has.

Read from the API's own text (networking.k8s.io/v1): a pod that no policy selects for a direction is open in it; a pod
that one selects is closed but for what the rules of all that select it open; a connection needs both ends to allow it.
"""

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from hvd_elastic.client.label_selector import selects
from testbed.kube.errors import ClusterError

Object = Mapping[str, Any]
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_ANYWHERE: Final = tuple(map(ipaddress.ip_network, ("0.0.0.0/0", "::/0")))
_ALL_PORTS: Final = (0, 65535)
_LAST_PHASES: Final = ("Succeeded", "Failed")
_NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"


class Direction(StrEnum):
    """Values of `policyTypes`."""

    INGRESS = "Ingress"
    EGRESS = "Egress"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """What a policy sees of a pod. `address` is empty until it has one, and once it has ended."""

    namespace: str
    name: str
    labels: Mapping[str, str]
    address: str = ""
    node: str = ""

    @classmethod
    def read(cls, item: Object) -> "Pod":
        """Read the API's object. A pod of the node's own network is the node: no policy applies to it."""
        metadata, status = item["metadata"], item.get("status", {})
        without = status.get("phase") in _LAST_PHASES or item["spec"].get("hostNetwork")
        return cls(
            namespace=metadata["namespace"],
            name=metadata["name"],
            labels=metadata.get("labels", {}),
            address="" if without else status.get("podIP", ""),
            node=item["spec"].get("nodeName", ""),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """Other ends, and ports of the end that is connected to, between which one rule lets a connection be made."""

    network: Network
    holes: tuple[Network, ...] = ()
    """Parts of `network` that are not meant."""
    protocol: str = ""
    """`tcp`, `udp` or `sctp`; empty: all, on all ports."""
    ports: tuple[int, int] = _ALL_PORTS

    def admits(self, address: str, port: int, protocol: str) -> bool:
        """Tell whether it lets a connection with that other end to that port be made."""
        other = ipaddress.ip_address(address)
        if other not in self.network or any(other in hole for hole in self.holes):
            return False
        return not self.protocol or (protocol == self.protocol and self.ports[0] <= port <= self.ports[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """All that the meaning of policies depends on."""

    pods: tuple[Pod, ...]
    namespaces: Mapping[str, Mapping[str, str]]
    """Labels by name."""
    policies: tuple[Object, ...]

    @classmethod
    def read(cls, pods: Iterable[Object], namespaces: Iterable[Object], policies: Iterable[Object]) -> "World":
        """Read the API's objects."""
        labels = {item["metadata"]["name"]: item["metadata"].get("labels", {}) for item in namespaces}
        return cls(pods=tuple(map(Pod.read, pods)), namespaces=labels, policies=tuple(policies))

    def openings(self, pod: Pod, direction: Direction) -> tuple[Opening, ...] | None:
        """Return what policies leave open to a pod; None where none selects it: all is open."""
        selecting = [policy for policy in self.policies if _selects(policy, pod, direction)]
        if not selecting:
            return None
        return tuple(opening for policy in selecting for opening in self._of_policy(policy, direction))

    def admits(self, source: Pod, target: Pod, port: int, protocol: str = "tcp") -> bool:
        """Tell whether one pod may connect to a port of another. A pod always reaches itself."""
        ends = ((source, target, Direction.EGRESS), (target, source, Direction.INGRESS))
        return source == target or all(self.passes(pod, other.address, port, protocol, way) for pod, other, way in ends)

    def passes(self, pod: Pod, other: str, port: int, protocol: str, direction: Direction) -> bool:
        """Tell whether a pod's own policies let a connection with an address through."""
        openings = self.openings(pod, direction)
        return openings is None or any(opening.admits(other, port, protocol) for opening in openings)

    def _of_policy(self, policy: Object, direction: Direction) -> Iterator[Opening]:
        home = policy["metadata"]["namespace"]
        peers_key = "from" if direction is Direction.INGRESS else "to"
        for rule in policy["spec"].get(direction.lower()) or ():
            blocks = self._blocks(rule.get(peers_key), home)
            ports = [_port(each) for each in rule.get("ports") or ()] or [("", _ALL_PORTS)]
            for network, holes in blocks:
                for protocol, span in ports:
                    yield Opening(network=network, holes=holes, protocol=protocol, ports=span)

    def _blocks(self, peers: Iterable[Object] | None, home: str) -> list[tuple[Network, tuple[Network, ...]]]:
        """Return the addresses that peers mean. None given means all there are."""
        if not peers:
            return [(every, ()) for every in _ANYWHERE]
        found: list[tuple[Network, tuple[Network, ...]]] = []
        for peer in peers:
            if block := peer.get("ipBlock"):
                holes = tuple(map(ipaddress.ip_network, block.get("except") or ()))
                found.append((ipaddress.ip_network(block["cidr"]), holes))
            else:
                found += [(ipaddress.ip_network(pod.address), ()) for pod in self._peers(peer, home)]
        return found

    def _peers(self, peer: Object, home: str) -> Iterator[Pod]:
        namespaces = {home}
        if (selector := peer.get("namespaceSelector")) is not None:
            labels = {name: {_NAMESPACE_NAME: name, **each} for name, each in self.namespaces.items()}
            namespaces = {name for name, each in labels.items() if selects(selector, each)}
        for pod in self.pods:
            if pod.address and pod.namespace in namespaces and selects(peer.get("podSelector") or {}, pod.labels):
                yield pod


def _selects(policy: Object, pod: Pod, direction: Direction) -> bool:
    spec = policy["spec"]
    # As the API's default: Ingress always, Egress if the policy has rules for it.
    types = spec.get("policyTypes") or [Direction.INGRESS, *([Direction.EGRESS] if spec.get("egress") else [])]
    return (
        direction in types
        and policy["metadata"]["namespace"] == pod.namespace
        and selects(spec.get("podSelector") or {}, pod.labels)
    )


def _port(each: Object) -> tuple[str, tuple[int, int]]:
    protocol, port = each.get("protocol", "TCP").lower(), each.get("port")
    if port is None:
        return protocol, _ALL_PORTS
    if not isinstance(port, int):
        raise ClusterError(f"port {port!r}: named ports of policies are not known here")
    return protocol, (port, each.get("endPort", port))
