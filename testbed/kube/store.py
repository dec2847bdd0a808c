"""Container images as containerd keeps them: one store in the cache, which every node starts from.

Importing gigabytes of torch takes a minute or more, and there are two nodes. So an image is imported once, into a store
that no node uses, and a node starts with a copy of that store whose layers are hard links: they are never written to.
An image that shares layers with one imported before brings only its new layers.
"""

import contextlib
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from testbed.kube import folders, gomodules, waiting
from testbed.kube.daemons import Daemon
from testbed.kube.errors import ClusterError

PAUSE_IMAGE: Final = "hvd-elastic.test/pause:1"
"""A pod's sandbox, and the inference server of the tests: a program that waits to be ended."""

_LABEL: Final = "io.containerd.image.name"
_LOADS: Final = 3
"""Attempts at an import. containerd may collect a blob that no image names yet, just before one would."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """An OCI image layout: a folder with `index.json` and `blobs/sha256`, where images share their layers."""

    folder: Path

    def manifest(self, tag: str) -> dict[str, Any]:
        """Return the descriptor of the manifest with a tag."""
        for entry in json.loads((self.folder / "index.json").read_text())["manifests"]:
            if entry.get("annotations", {}).get("org.opencontainers.image.ref.name") == tag:
                return {key: entry[key] for key in ("mediaType", "digest", "size")}
        raise ClusterError(f"{self.folder} has no image {tag}")

    def blob(self, digest: str) -> Path:
        """Return where a blob lies."""
        return self.folder / "blobs" / digest.replace(":", "/")

    def blobs(self, manifest: dict[str, Any]) -> list[str]:
        """Return the digests of an image, its manifest last."""
        content = json.loads(self.blob(manifest["digest"]).read_text())
        return [layer["digest"] for layer in content["layers"]] + [content["config"]["digest"], manifest["digest"]]

    def keep(self, tag: str) -> None:
        """Remove all images but this one, and their blobs."""
        index = self.folder / "index.json"
        content = json.loads(index.read_text())
        kept = self.manifest(tag)
        content["manifests"] = [each for each in content["manifests"] if each["digest"] == kept["digest"]]
        index.write_text(json.dumps(content))
        needed = {self.blob(digest) for digest in self.blobs(kept)}
        for blob in self.folder.glob("blobs/*/*"):
            if blob not in needed:
                blob.unlink()


def folder() -> Path:
    """Return the root of the store."""
    return folders.cache() / "containerd"


def copy_to(target: Path) -> None:
    """Make a node's store: directories and databases of its own, all files of layers shared."""
    subprocess.run(["cp", "--archive", "--link", str(folder()), str(target)], check=True)
    for database in target.glob("*/*.db"):  # a plugin's own; the layers have such files, too
        source = folder() / database.relative_to(target)
        database.unlink()
        shutil.copy2(source, database)


@contextlib.contextmanager
def served(state: Path, cgroup: str) -> Iterator[Path]:
    """Serve the store by a containerd of its own while the block runs; yields its socket."""
    scratch = state / "store"
    scratch.mkdir(parents=True, exist_ok=True)
    configuration = scratch / "containerd.toml"
    socket = scratch / "containerd.sock"
    configuration.write_text(
        'version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n'
        # Above all tables: in one of them it would say nothing, and the store would be /var/lib/containerd.
        f'root = "{folder()}"\nstate = "{scratch}/run"\n'
        # No collection of garbage but the one that `images rm --sync` asks for: blobs that are announced before their
        # image is there are garbage in its eyes.
        '[plugins."io.containerd.gc.v1.scheduler"]\n startup_delay = "24h"\n'
        " deletion_threshold = 0\n mutation_threshold = 0\n"
        f'[grpc]\n address = "{socket}"\n'
    )
    daemon = Daemon(name="store", argv=["containerd", "--config", str(configuration)], state=str(state), cgroup=cgroup)
    daemon.start()
    try:
        wait_answers(socket, daemon)
        yield socket
    finally:
        daemon.end()


def wait_answers(socket: Path, daemon: Daemon) -> None:
    """Wait until a containerd answers."""

    def answers() -> bool:
        daemon.require_alive()
        return subprocess.run([*_ctr(socket), "version"], capture_output=True, check=False).returncode == 0

    waiting.until(f"{daemon.name} answers", answers, within_seconds=60, seen=daemon.tail)


def images(socket: Path) -> set[str]:
    """Return the names of all images that a containerd has."""
    return set(_call(socket, "images", "ls", "-q").split())


def load(socket: Path, root: Path, layout: Layout, tag: str, name: str) -> None:
    """Import an image as `name` with the blobs that are not there.

    `root` is where that containerd keeps its content. Blobs are linked to that place and then announced by digest, for
    gigabytes would take minutes through the socket, hashed three times on the way.
    """
    manifest = layout.manifest(tag)
    for _ in range(_LOADS):
        _add_blobs(socket, root, layout, tag)
        said = _import(socket, manifest, name)
        if not said:
            return
    raise ClusterError(f"ctr images import {name}: {said}")


def _add_blobs(socket: Path, root: Path, layout: Layout, tag: str) -> None:
    there = set(_call(socket, "content", "ls", "-q").split())
    for digest in layout.blobs(layout.manifest(tag)):
        if digest not in there:
            _ingest(socket, root, layout.blob(digest), digest)


def _import(socket: Path, manifest: dict[str, Any], name: str) -> str:
    """What went wrong; empty if nothing did."""
    command = [*_ctr(socket), "images", "import", "-"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        if process.stdin is None or process.stdout is None:
            raise ClusterError("ctr has no pipes")
        with contextlib.suppress(BrokenPipeError):
            _send_index(process.stdin, manifest, name)
            process.stdin.close()
        said = process.stdout.read().decode(errors="replace")
    return said.strip() or f"exit code {process.returncode}" if process.returncode else ""


def remove_older(socket: Path, name: str) -> None:
    """Remove other images of the same repository: the cache keeps one state of the code."""
    for other in images(socket) - {name}:
        if other.rpartition(":")[0] == name.rpartition(":")[0]:
            _call(socket, "images", "rm", "--sync", other)


def pause_layout(into: Path) -> Layout:
    """Wrap the pause program as an image."""
    program = gomodules.binaries(gomodules.PAUSE) / "pause"
    return program_layout(into, {"pause": program}, ["/pause"])


def program_layout(into: Path, files: Mapping[str, Path], entrypoint: Sequence[str]) -> Layout:
    """Make an image with tag `1` of programs that need nothing else: one layer, its files at their paths below `/`."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as archive:
        for name, file in files.items():
            archive.add(file, arcname=name, filter=_anonymous)
    made = Layout(folder=into)
    digest = _put(made, layer.getvalue())
    platform = {"architecture": _architecture(), "os": "linux"}
    process = {"config": {"Entrypoint": [*entrypoint], "User": "65535:65535"}}
    config = _descriptor(
        made, "config.v1+json", {**platform, **process, "rootfs": {"type": "layers", "diff_ids": [digest]}}
    )
    layers = [{"mediaType": _media("layer.v1.tar"), "digest": digest, "size": len(layer.getvalue())}]
    manifest = _descriptor(
        made,
        "manifest.v1+json",
        {"schemaVersion": 2, "mediaType": _media("manifest.v1+json"), "config": config, "layers": layers},
    )
    entry = {**manifest, "annotations": {"org.opencontainers.image.ref.name": "1"}}
    (into / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
    return made


def _ingest(socket: Path, root: Path, blob: Path, digest: str) -> None:
    target = root / "io.containerd.content.v1.content" / "blobs" / digest.replace(":", "/")
    target.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(OSError):  # there already, or on another file system: then it is sent
        target.hardlink_to(blob)
    size = str(blob.stat().st_size)
    command = ["content", "ingest", "--expected-digest", digest, "--expected-size", size, f"blob-{digest}"]
    with blob.open("rb") as content:
        done = subprocess.run([*_ctr(socket), *command], stdin=content, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ClusterError(f"ctr content ingest {digest}: {done.stderr.strip()}")


def _send_index(out: IO[bytes], manifest: dict[str, Any], name: str) -> None:
    index = {"schemaVersion": 2, "manifests": [{**manifest, "annotations": {_LABEL: name}}]}
    with tarfile.open(fileobj=out, mode="w|") as archive:
        _add(archive, "oci-layout", {"imageLayoutVersion": "1.0.0"})
        _add(archive, "index.json", index)


def _add(archive: tarfile.TarFile, name: str, value: Any) -> None:
    content = json.dumps(value).encode()
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


def _descriptor(layout: Layout, kind: str, value: dict[str, Any]) -> dict[str, Any]:
    content = json.dumps(value, sort_keys=True).encode()
    return {"mediaType": _media(kind), "digest": _put(layout, content), "size": len(content)}


def _put(layout: Layout, content: bytes) -> str:
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    layout.blob(digest).parent.mkdir(parents=True, exist_ok=True)
    layout.blob(digest).write_bytes(content)
    return digest


def _media(kind: str) -> str:
    return f"application/vnd.oci.image.{kind}"


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    member.mode = 0o755
    return member


def _architecture() -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)


def _ctr(socket: Path) -> list[str]:
    return ["ctr", "--address", str(socket), "--namespace", "k8s.io"]


def _call(socket: Path, *arguments: str) -> str:
    done = subprocess.run([*_ctr(socket), *arguments], text=True, capture_output=True, check=False)
    if done.returncode:
        raise ClusterError(f"ctr {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout
