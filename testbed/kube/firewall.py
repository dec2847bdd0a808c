"""Enforces NetworkPolicies on the nodes: `python -m testbed.kube.firewall KUBECONFIG NODE=NETNS...`.

It watches pods, namespaces and policies with a kubeconfig of its own, lets `policy` say what they mean, and keeps two
chains of iptables in each node's network namespace, replaced in one step. What passes between pods of one node crosses
a bridge, and br_netfilter shows it to these chains. Addresses and ports are those behind a service: the translation
comes first. What a policy closes gets no answer at all.
"""

import ipaddress
import json
import queue
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any, Final

from testbed.kube.errors import ClusterError
from testbed.kube.policy import Direction, Opening, Pod, World

EGRESS: Final = "POLICY-EGRESS"
INGRESS: Final = "POLICY-INGRESS"
_PATHS: Final = {
    "pods": "/api/v1/pods",
    "namespaces": "/api/v1/namespaces",
    "policies": "/apis/networking.k8s.io/v1/networkpolicies",
}
_PROGRAMS: Final = {4: "iptables", 6: "ip6tables"}
_NEIGHBOURS: Final = (135, 136)
"""Neighbour solicitation and advertisement (RFC 4861), which are to IPv6 what ARP is to IPv4: no policy closes them."""
_SILENCE_SECONDS: Final = 3600
"""The API server ends a watch of its own accord before that."""


def rules(world: World, node: str, *, version: int = 4) -> str:
    """Return what iptables-restore, or that of IP version 6, is to make of the chains of a node.

    A connection passes the first chain for its source, if that is a pod of this node, and goes on to the second for its
    target. Each end is judged by the node it is on.
    """
    here = (pod for pod in world.pods if pod.node == node and pod.address)
    local = sorted((pod for pod in here if _version(pod.address) == version), key=lambda pod: pod.address)
    lines = ["*filter", f":{EGRESS} - [0:0]", f":{INGRESS} - [0:0]"]
    lines.append(f"-A {EGRESS} -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT")
    if version == 6:
        lines += [f"-A {EGRESS} -p ipv6-icmp --icmpv6-type {number} -j ACCEPT" for number in _NEIGHBOURS]
    for pod in local:
        lines += _closed(EGRESS, "-s", "-d", pod, world.openings(pod, Direction.EGRESS), passed=f"-g {INGRESS}")
    lines.append(f"-A {EGRESS} -g {INGRESS}")
    for pod in local:
        lines += _closed(INGRESS, "-d", "-s", pod, world.openings(pod, Direction.INGRESS), passed="-j ACCEPT")
    return "\n".join([*lines, "COMMIT", ""])


def _closed(
    chain: str, mine: str, theirs: str, pod: Pod, openings: tuple[Opening, ...] | None, *, passed: str
) -> Iterator[str]:
    if openings is None:
        return
    for opening in openings:
        if opening.network.version != _version(pod.address):
            continue
        ports = f" -p {opening.protocol} --dport {opening.ports[0]}:{opening.ports[1]}" if opening.protocol else ""
        # A hole is left to the other openings, so it is excluded, not dropped.
        holes = "".join(f" -m iprange ! --{_RANGE[theirs]} {hole[0]}-{hole[-1]}" for hole in opening.holes)
        yield f"-A {chain} {mine} {pod.address} {theirs} {opening.network}{holes}{ports} {passed}"
    yield f"-A {chain} {mine} {pod.address} -j DROP"


def _version(address: str) -> int:
    return ipaddress.ip_address(address).version


_RANGE: Final = {"-s": "src-range", "-d": "dst-range"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """The API server, as a kubeconfig with a token names it."""

    server: str
    token: str
    context: ssl.SSLContext

    @classmethod
    def read(cls, kubeconfig: Path) -> "Api":
        """Read what `certificates.kubeconfig` wrote."""
        value = json.loads(kubeconfig.read_text())
        cluster = value["clusters"][0]["cluster"]
        context = ssl.create_default_context(cafile=cluster["certificate-authority"])
        return cls(server=cluster["server"], token=value["users"][0]["user"]["token"], context=context)

    def get(self, path: str) -> HTTPResponse:
        """Open a path; the caller reads and closes it."""
        headers = {"Authorization": f"Bearer {self.token}"}
        asked = urllib.request.Request(f"{self.server}{path}", headers=headers)
        opened: HTTPResponse = urllib.request.urlopen(asked, context=self.context, timeout=_SILENCE_SECONDS)
        return opened


@dataclass(slots=True, kw_only=True)
class Objects:
    """All objects of one kind by UID, as the watch last told of them."""

    api: Api
    path: str
    changed: queue.SimpleQueue[str]
    items: dict[str, dict[str, Any]] | None = field(default=None)
    """None until the first list: nothing may be decided before."""

    def follow(self) -> None:
        """List, then watch until the API server ends that, for ever."""
        while True:
            try:
                self._watch(self._list())
            except (OSError, HTTPException, json.JSONDecodeError) as error:
                print(f"{self.path}: {error}", flush=True)
                time.sleep(1)

    def _list(self) -> str:
        with self.api.get(self.path) as response:
            listed = json.load(response)
        self.items = {item["metadata"]["uid"]: item for item in listed["items"]}
        self.changed.put(self.path)
        version: str = listed["metadata"]["resourceVersion"]
        return version

    def _watch(self, version: str) -> None:
        with self.api.get(f"{self.path}?watch=1&resourceVersion={version}") as response:
            for line in response:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return
                self._take(event["type"], event["object"])
                self.changed.put(self.path)

    def _take(self, change: str, item: dict[str, Any]) -> None:
        # A new dictionary each time: the other thread reads the one that it holds.
        rest = {uid: each for uid, each in (self.items or {}).items() if uid != item["metadata"]["uid"]}
        self.items = rest if change == "DELETED" else {**rest, item["metadata"]["uid"]: item}


def enforce(api: Api, nodes: Mapping[str, str]) -> None:
    """Keep the chains of every node (name to network namespace) as the policies mean them, until killed."""
    changed: queue.SimpleQueue[str] = queue.SimpleQueue()
    kinds = {kind: Objects(api=api, path=path, changed=changed) for kind, path in _PATHS.items()}
    for each in kinds.values():
        threading.Thread(target=each.follow, daemon=True).start()
    kept: dict[tuple[str, int], str] = {}
    while True:
        changed.get()
        while not changed.empty():
            changed.get()
        if all(each.items is not None for each in kinds.values()):
            world = World.read(**{kind: (each.items or {}).values() for kind, each in kinds.items()})
            versions = {_version(pod.address) for pod in world.pods if pod.address}
            for version in versions:
                for node, netns in nodes.items():
                    if kept.get((node, version)) != (wanted := rules(world, node, version=version)):
                        _restore(netns, wanted, _PROGRAMS[version])
                        kept[node, version] = wanted


def clear(netns: str) -> None:
    """Remove the chains from a namespace; what was closed is open again."""
    for command in (["-D", "FORWARD", "-j", EGRESS], ["-F", EGRESS], ["-F", INGRESS], ["-X", EGRESS], ["-X", INGRESS]):
        for program in _PROGRAMS.values():
            _within(netns, program, "-w", *command)


def _restore(netns: str, wanted: str, program: str) -> None:
    done = _within(netns, f"{program}-restore", "-w", "--noflush", stdin=wanted)
    if done.returncode:
        raise ClusterError(f"{program}-restore refuses\n{wanted}\n{done.stderr}")
    if _within(netns, program, "-w", "-C", "FORWARD", "-j", EGRESS).returncode:
        _within(netns, program, "-w", "-I", "FORWARD", "-j", EGRESS)


def _within(netns: str, *command: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    entered = ["nsenter", f"--net=/run/netns/{netns}", *command]
    return subprocess.run(entered, input=stdin, text=True, capture_output=True, check=False)


if __name__ == "__main__":
    enforce(Api.read(Path(sys.argv[1])), dict(each.split("=", 1) for each in sys.argv[2:]))
