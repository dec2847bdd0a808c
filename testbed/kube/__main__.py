"""`python -m testbed.kube up|prepare|down|status`: the cluster from the command line (docs/cluster.md)."""

import argparse
import sys
import time

from testbed.kube import cluster
from testbed.kube.errors import ClusterError


def main(arguments: list[str] | None = None) -> int:
    """Run one command; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m testbed.kube", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    starting = verbs.add_parser("up", help="bring the cluster up")
    starting.add_argument("--kwok-nodes", type=int, default=0, metavar="N", help="nodes that only say they run pods")
    starting.add_argument("--no-image", action="store_true", help="without the product's image")
    starting.add_argument("--ipv6", action="store_true", help="nodes, pods and services have IPv6 addresses alone")
    verbs.add_parser("prepare", help="build what it is made of, and bring nothing up")
    verbs.add_parser("down", help="take it down, whatever is left of it")
    verbs.add_parser("status", help="say what runs; exit code 1 if a part does not")
    asked = parser.parse_args(arguments)
    try:
        return {"up": _up, "prepare": _prepare, "down": _down, "status": _status}[asked.verb](asked)
    except ClusterError as error:
        print(error, file=sys.stderr)
        return error.exit_code


def _up(asked: argparse.Namespace) -> int:
    before = time.monotonic()
    running = cluster.up(with_image=not asked.no_image, kwok_nodes=asked.kwok_nodes, ipv6=asked.ipv6)
    print(f"up in {time.monotonic() - before:.0f} s; export KUBECONFIG={running.plane.admin}")
    print(f"kubectl: {running.kubectl.program}")
    return 0


def _prepare(_: argparse.Namespace) -> int:
    cluster.prepare()
    return 0


def _down(_: argparse.Namespace) -> int:
    cluster.down()
    return 0


def _status(_: argparse.Namespace) -> int:
    if (running := cluster.attach()) is None:
        print("no cluster runs")
        return 1
    for daemon in running.daemons():
        print(f"{daemon.name:28}{'runs' if daemon.alive() else 'ended':8}{daemon.log}")
    if running.ended():
        return 1
    print(running.kubectl("get", "nodes", "-o", "wide"), end="")
    print(f"KUBECONFIG={running.plane.admin}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
