"""Workers in networks that are not their own: the launcher's interface has another name than theirs, their host names
resolve nowhere, and ssh listens where the job says. Real processes, ssh and Horovod.

Needs root (for the namespaces), iproute2, openssh-client and openssh-server.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from hvd_elastic.discovery.hosts_script import write_script
from testbed.debian_programs import needed
from tests.hvd_elastic.worker.test_cluster_like import possible

pytestmark = [
    pytest.mark.process,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not possible(), reason="needs root and namespaces"),
]

SCRIPT: Final = """\
import os, torch, horovod.torch as hvd
import hvd_elastic as elastic
elastic.init()
total = hvd.allreduce(torch.ones(1), op=hvd.Sum).item()
print("rank", hvd.rank(), "sums to", total, "over", os.environ["HOROVOD_GLOO_IFACE"], flush=True)
"""
SSHD_CONFIG: Final = """\
PidFile none
HostKey {folder}/id_rsa
AuthorizedKeysFile {folder}/id_rsa.pub
PermitRootLogin yes
StrictModes no
UsePAM no
SetEnv PATH={path}
"""
SSH_CONFIG: Final = """\
Host *
    User root
    IdentityFile {folder}/id_rsa
    StrictHostKeyChecking no
    UserKnownHostsFile /dev/null
    LogLevel ERROR
"""
NODES: Final = """
set -e
mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs tmpfs /run
mkdir -p /run/sshd /run/netns /run/hvd-elastic
mount --bind "$FOLDER/sshd_config" /etc/ssh/sshd_config
mount --bind "$FOLDER/ssh_config" /etc/ssh/ssh_config
ip link set lo up
ip link add name hub type bridge
ip link set hub up
number=2
for network in launcher node-3 node-4; do
    interface=uplink; [ $network != launcher ] || interface=eth0
    ip netns add $network
    ip link add cable$number type veth peer name $interface netns $network
    ip link set cable$number master hub up
    ip -n $network address add 192.0.2.$number/24 dev $interface
    ip -n $network link set lo up
    ip -n $network link set $interface up
    number=$((number + 1))
done
for number in 3 4; do
    unshare --mount --uts sh -c "
        mount -t tmpfs tmpfs /run/hvd-elastic
        hostname node-$number.invalid
        export HVD_ELASTIC_HOST_ADDRESS=192.0.2.$number HVD_ELASTIC_POD_UID=a-$number
        exec ip netns exec node-$number hvd-elastic worker --ssh-port 25000 --ready-port 25001 -- python train.py" &
done
for number in 3 4; do
    until answer=$(ip netns exec launcher python -c "
import socket; print(socket.create_connection(('192.0.2.$number', 25001), 1).recv(99).decode())" 2>/dev/null) &&
        [ "$answer" = "hvd-elastic 1 1 waiting -1 -1 a-$number" ]; do sleep 0.2; done
done
cp "$FOLDER/discover-hosts" /run/hvd-elastic/
tell() {
    read -r uptime _ </proc/uptime
    {
        for number in 3 4; do echo "host 192.0.2.$number 1 a-$number-1 worker-$number"; done
        echo "end 1 2 ${uptime%%.*} 0 ok"
    } >/run/hvd-elastic/next
    mv /run/hvd-elastic/next /run/hvd-elastic/hosts
}
tell
while sleep 1; do tell; done &
ip netns exec launcher hvd-elastic "$LAUNCHER" -np 2 --min-np 2 --max-np 2 --slots-per-host 1 --gloo \\
    --network-interface eth0 --ssh-port 25000 --host-discovery-script /run/hvd-elastic/discover-hosts \\
    /run/hvd-elastic/adopt python train.py
"""


@pytest.mark.needs_patch("process-set-interface")
@pytest.mark.parametrize("launcher", [pytest.param("launch", marks=pytest.mark.core), "horovodrun"])
def test_a_job_trains_over_the_interfaces_of_its_nodes(tmp_path: Path, launcher: str) -> None:
    for program in ("ip", "ssh", "sshd"):
        needed(program)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f", str(tmp_path / "id_rsa")], check=True)
    (tmp_path / "sshd_config").write_text(SSHD_CONFIG.format(folder=tmp_path, path=path))
    (tmp_path / "ssh_config").write_text(SSH_CONFIG.format(folder=tmp_path))
    (tmp_path / "train.py").write_text(SCRIPT)
    write_script(tmp_path)
    alone = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child"]
    done = subprocess.run(
        [*alone, "sh", "-c", NODES],
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "FOLDER": str(tmp_path), "LAUNCHER": launcher},
        capture_output=True,
        text=True,
        check=False,
    )
    said = [line.partition(":")[2] for line in done.stdout.splitlines()]
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(said) == [f"rank {rank} sums to 2.0 over uplink" for rank in range(2)], done.stdout + done.stderr
