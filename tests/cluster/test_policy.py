"""What the policy engine of the test cluster takes NetworkPolicies to mean, and that its chains say just that."""

import shlex
from ipaddress import IPv4Address, IPv4Network
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as some

from testbed.kube import firewall
from testbed.kube.errors import ClusterError
from testbed.kube.policy import Direction, Pod, World

NAMESPACES = {"shop": {"team": "shop"}, "bank": {"team": "bank"}}
WEB = Pod(namespace="shop", name="web", labels={"app": "web"}, address="10.0.0.1", node="a")
DATABASE = Pod(namespace="shop", name="db", labels={"app": "db"}, address="10.0.0.2", node="a")
OTHER_WEB = Pod(namespace="bank", name="web", labels={"app": "web"}, address="10.0.1.1", node="b")
PODS = (WEB, DATABASE, OTHER_WEB)
PORTS = (53, 5432, 40000)


def policy(selector: dict[str, Any], *, namespace: str = "shop", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": namespace}, "spec": {"podSelector": selector, **spec}}


def world(*policies: dict[str, Any]) -> World:
    return World(pods=PODS, namespaces=NAMESPACES, policies=policies)


DB = {"matchLabels": {"app": "db"}}
WEB_PODS = {"podSelector": {"matchLabels": {"app": "web"}}}
BANK = {"namespaceSelector": {"matchLabels": {"team": "bank"}}}


def test_without_policies_all_is_open() -> None:
    assert world().admits(WEB, DATABASE, 5432)


def test_an_empty_selector_closes_every_pod_of_its_namespace_and_no_other() -> None:
    closed = world(policy({}))
    assert not closed.admits(WEB, DATABASE, 5432)
    assert not closed.admits(OTHER_WEB, DATABASE, 5432)
    assert closed.admits(DATABASE, OTHER_WEB, 5432)


@pytest.mark.parametrize(
    ("peers", "own", "foreign"),
    [
        ([WEB_PODS], True, False),
        ([BANK], False, True),
        ([{**WEB_PODS, **BANK}], False, True),
        ([{"podSelector": DB, **BANK}], False, False),
        ([WEB_PODS, BANK], True, True),
        ([{"namespaceSelector": {}}], True, True),
        ([{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "bank"}}}], False, True),
        ([{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.0.1.0/24"]}}], True, False),
        ([], True, True),
        (None, True, True),
    ],
)
def test_peers_by_pod_by_namespace_by_both_and_by_address(peers: Any, own: bool, foreign: bool) -> None:
    rule = {} if peers is None else {"from": peers}
    opened = world(policy(DB, ingress=[rule]))
    assert opened.admits(WEB, DATABASE, 5432) is own
    assert opened.admits(OTHER_WEB, DATABASE, 5432) is foreign


@pytest.mark.parametrize(
    ("ports", "admitted"),
    [
        ([{"port": 5432}], {("tcp", 5432)}),
        ([{"port": 53, "protocol": "UDP"}], {("udp", 53)}),
        ([{"port": 5000, "endPort": 6000}], {("tcp", 5432)}),
        ([{"protocol": "UDP"}], {("udp", port) for port in PORTS}),
        ([], {(protocol, port) for port in PORTS for protocol in ("tcp", "udp")}),
    ],
)
def test_ports_are_tcp_unless_said_and_all_of_them_unless_numbered(ports: Any, admitted: set[tuple[str, int]]) -> None:
    opened = world(policy(DB, ingress=[{"ports": ports}]))
    found = {(each, port) for port in PORTS for each in ("tcp", "udp") if opened.admits(WEB, DATABASE, port, each)}
    assert found == admitted


def test_policies_add_up_and_both_ends_must_agree() -> None:
    inward = policy(DB, ingress=[{"from": [WEB_PODS]}])
    outward = policy({}, policyTypes=["Egress"], egress=[{"ports": [{"port": 53, "protocol": "UDP"}]}])
    assert not world(inward, outward).admits(WEB, DATABASE, 5432)
    assert world(inward, outward).admits(WEB, DATABASE, 53, "udp")
    assert world(inward, outward, policy({}, policyTypes=["Egress"], egress=[{}])).admits(WEB, DATABASE, 5432)


def test_egress_is_closed_only_by_a_policy_that_speaks_of_it() -> None:
    assert world(policy(DB)).passes(DATABASE, "1.1.1.1", 443, "tcp", Direction.EGRESS)
    assert not world(policy(DB, egress=[{"to": [BANK]}])).passes(DATABASE, "1.1.1.1", 443, "tcp", Direction.EGRESS)


def test_what_is_not_known_is_not_guessed() -> None:
    with pytest.raises(ClusterError, match="named ports"):
        world(policy(DB, ingress=[{"ports": [{"port": "sql"}]}])).admits(WEB, DATABASE, 5432)


def test_an_ended_pod_has_no_address_that_a_policy_could_mean() -> None:
    item = {"metadata": {"namespace": "shop", "name": "job"}, "spec": {"nodeName": "a"}}
    assert Pod.read({**item, "status": {"phase": "Running", "podIP": "10.0.0.9"}}).address == "10.0.0.9"
    assert Pod.read({**item, "status": {"phase": "Succeeded", "podIP": "10.0.0.9"}}).address == ""


selectors = some.sampled_from([{}, DB, {"matchLabels": {"app": "web"}}])
peers = some.lists(
    some.sampled_from([WEB_PODS, BANK, {"ipBlock": {"cidr": "10.0.0.0/16", "except": ["10.0.0.2/32"]}}]), max_size=2
)
ports = some.lists(
    some.sampled_from([{"port": 5432}, {"port": 50, "endPort": 60, "protocol": "UDP"}, {"protocol": "TCP"}]), max_size=2
)
policies = some.builds(
    lambda selector, namespace, types, inward, outward: policy(
        selector,
        namespace=namespace,
        policyTypes=types,
        ingress=[{"from": each, "ports": on} for each, on in inward],
        egress=[{"to": each, "ports": on} for each, on in outward],
    ),
    selectors,
    some.sampled_from([*NAMESPACES]),
    some.sampled_from([["Ingress"], ["Egress"], ["Ingress", "Egress"]]),
    some.lists(some.tuples(peers, ports), max_size=2),
    some.lists(some.tuples(peers, ports), max_size=2),
)


@given(some.lists(policies, max_size=3), some.sampled_from(PODS), some.sampled_from(PODS), some.sampled_from(PORTS))
def test_the_chains_of_the_nodes_let_through_what_the_policies_mean(
    given: list[dict[str, Any]], source: Pod, target: Pod, port: int
) -> None:
    assume(source != target)
    meant = world(*given)
    for protocol in ("tcp", "udp"):
        nodes = {source.node, target.node}
        through = all(_passes(firewall.rules(meant, node), source, target, protocol, port) for node in nodes)
        assert through is meant.admits(source, target, port, protocol)


def _passes(rules: str, source: Pod, target: Pod, protocol: str, port: int) -> bool:
    """Walk a new connection through the chains as the kernel would."""
    chain = firewall.EGRESS
    while True:
        for line in rules.splitlines():
            if not line.startswith(f"-A {chain} "):
                continue
            if (verdict := _verdict(shlex.split(line)[2:], source, target, protocol, port)) is not None:
                break
        else:
            return True  # back in FORWARD, which lets pass
        if verdict in {"ACCEPT", "DROP"}:
            return verdict == "ACCEPT"
        chain = verdict


def _verdict(words: list[str], source: Pod, target: Pod, protocol: str, port: int) -> str | None:
    """Return where a rule sends the connection; None where it does not match."""
    ends = {"-s": source, "--src-range": source, "-d": target, "--dst-range": target}
    wanted = True
    while words:
        word = words.pop(0)
        if word == "!":
            wanted = False
            continue
        value = words.pop(0)
        if word in {"-j", "-g"}:
            return value
        if word == "--ctstate" or _matches(word, value, ends, protocol, port) is not wanted:
            return None
        wanted = True
    raise AssertionError("a rule without a target")


def _matches(word: str, value: str, ends: dict[str, Pod], protocol: str, port: int) -> bool:
    match word:
        case "-s" | "-d":
            return IPv4Address(ends[word].address) in IPv4Network(value)
        case "--src-range" | "--dst-range":
            first, last = map(IPv4Address, value.split("-"))
            return first <= IPv4Address(ends[word].address) <= last
        case "-p":
            return value == protocol
        case "--dport":
            first_port, last_port = map(int, value.split(":"))
            return first_port <= port <= last_port
        case "-m":
            return True
    raise AssertionError(f"unknown word {word}")


def test_each_kind_of_address_has_chains_of_its_own() -> None:
    pods = [Pod(namespace="shop", name=name, labels={}, address=name, node="a") for name in ("10.0.0.1", "fd00::1")]
    blocks = [{"ipBlock": {"cidr": cidr}} for cidr in ("10.0.0.0/8", "fd00::/8")]
    closed = World(pods=tuple(pods), namespaces=NAMESPACES, policies=(policy({}, ingress=[{"from": blocks}]),))
    for version, own, block in ((4, "10.0.0.1", "10.0.0.0/8"), (6, "fd00::1", "fd00::/8")):
        (*_, opened, dropped, _) = firewall.rules(closed, "a", version=version).splitlines()
        assert opened == f"-A POLICY-INGRESS -d {own} -s {block} -j ACCEPT"
        assert dropped == f"-A POLICY-INGRESS -d {own} -j DROP"
