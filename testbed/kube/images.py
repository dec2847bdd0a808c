"""The product's image: the project's own Dockerfile, built by buildah over a Debian that debootstrap made.

No registry is needed. What this machine needs to reach a package index (certificates, pip.conf) goes into that Debian,
as it would into a company's base image, and never into the Dockerfile.
"""

import hashlib
import json
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from hvd_elastic.horovod import wheel_build
from testbed import debian_root
from testbed.kube import buildah, folders
from testbed.kube.errors import ClusterError
from testbed.kube.store import Layout

PROJECT: Final = Path(__file__).resolve().parents[2]
SUITE: Final = "trixie"
PYTHON: Final = (3, 13)
"""python3 of that Debian, and so of the pods. This machine's may be another."""
_BASES: Final = "localhost/hvd-elastic-base"
BASE: Final = f"{_BASES}:{SUITE}"
REPOSITORY: Final = "hvd-elastic.test/image"
_BELOW: Final = "runtime"
"""The stage of the Dockerfile below which nothing of ours is: gigabytes that change when uv.lock or Horovod does."""
_STAGES: Final = ("tools", "horovod", _BELOW, "contents")
"""Stages that are tagged, so that pruning leaves them in buildah's cache: a change of our code must not run apt-get."""
_CONTEXT: Final = (
    *("Dockerfile", ".dockerignore", "pyproject.toml", "uv.lock", "README.md", "LICENSE"),
    *("docker", "examples", "hvd_elastic", "mpijob", "discovery", "trainer", "priorityclasses"),
)


def layout() -> Layout:
    """Return the layout in the cache that holds the built images."""
    return Layout(folder=folders.cache() / "oci")


def tag() -> str:
    """Return a name for what the image is made of: the same files, the same tag."""
    digest = hashlib.sha256()
    for file in _files(PROJECT / name for name in _CONTEXT):
        digest.update(str(file.relative_to(PROJECT)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]


def build() -> str:
    """Build the image of the checkout as it is, unless the layout has it; return its tag.

    Raises:
        ClusterError: the build failed; the message ends with its last lines.

    """
    wanted = tag()
    with _building() as scratch:
        if wanted not in _tags():
            _make_base(scratch)
            wheels = scratch / "wheels"
            wheels.mkdir()
            _collect_wheels(wheels)
            for stage in _STAGES:
                _build(stage, wheels, f"--target={stage}")
            _build(wanted, wheels)
            _publish_below(f"{REPOSITORY}:{_BELOW}", scratch / "layers")
            publish(f"{REPOSITORY}:{wanted}", wanted)
            _forget_others(wanted)
    return wanted


def build_variant(as_tag: str, arguments: Mapping[str, str]) -> str:
    """Build the image as a user does, with these build arguments; return its name in buildah's store.

    Horovod is compiled in its stage. The image and its layers stay until the one for the cluster is built anew.

    Raises:
        ClusterError: the build failed; the message ends with its last lines.

    """
    with _building() as scratch:
        _make_base(scratch)
        no_wheels = scratch / "wheels"
        no_wheels.mkdir()
        options = [f"--build-arg={name}={value}" for name, value in arguments.items()]
        return _build(as_tag, no_wheels, *options)


@contextmanager
def _building() -> Iterator[Path]:
    """Build alone, with a folder in the cache for gigabytes. What a killed build has left in it goes first."""
    with folders.alone("image"):
        scratch = folders.cache() / "image-scratch"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(exist_ok=True)
        try:
            yield scratch
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def publish(image: str, as_tag: str) -> None:
    """Put an image of buildah's into the layout. Layers that are there already are not written again."""
    layout().folder.mkdir(parents=True, exist_ok=True)
    buildah.call("push", image, f"oci:{layout().folder}:{as_tag}")


def _publish_below(image: str, scratch: Path) -> None:
    """Put the layers that seldom change into the layout as they are.

    A push to a layout compresses, two minutes for torch, and takes every blob for new whose compressed form it would
    have to make first; it looks for the uncompressed ones by their digest. A push to a folder does not compress.
    """
    layers = json.loads(buildah.call("inspect", "--type=image", image))["OCIv1"]["rootfs"]["diff_ids"]
    if all(layout().blob(digest).exists() for digest in layers):
        return
    buildah.call("push", "--disable-compression", image, f"dir:{scratch}")
    for digest in layers:
        layout().blob(digest).parent.mkdir(parents=True, exist_ok=True)
        (scratch / digest.removeprefix("sha256:")).replace(layout().blob(digest))


def _forget_others(wanted: str) -> None:
    """Keep one state of the code: each other Horovod or torch below it would keep some ten gigabytes."""
    names = buildah.call("images", "--noheading", "--format={{.Name}}:{{.Tag}}").split()
    kept = {BASE, *(f"{REPOSITORY}:{tag}" for tag in (*_STAGES, wanted))}
    others = {name for name in names if name.startswith((_BASES, REPOSITORY))} - kept
    if others:
        buildah.call("rmi", "--force", *sorted(others))
    buildah.call("rmi", "--prune", "--force")
    layout().keep(wanted)


def derive(as_tag: str, containerfile: str) -> str:
    """Build a user's image from the text of a Containerfile and publish it; return its tag."""
    with tempfile.TemporaryDirectory() as context:
        (Path(context) / "Containerfile").write_text(containerfile)
        buildah.build(f"{REPOSITORY}:{as_tag}", Path(context) / "Containerfile")
    publish(f"{REPOSITORY}:{as_tag}", as_tag)
    return as_tag


def _build(as_tag: str, wheels: Path, *options: str) -> str:
    image = f"{REPOSITORY}:{as_tag}"
    # No day of Debian's archive: packages are those of the mirror that this machine reaches.
    inputs = (f"--build-arg=BASE={BASE}", "--build-arg=SNAPSHOT=", f"--build-context=wheels={wheels}")
    buildah.build(image, PROJECT / "Dockerfile", "--layers", *inputs, *options)
    return image


def _tags() -> set[str]:
    index = layout().folder / "index.json"
    if not index.exists():
        return set()
    entries = json.loads(index.read_text())["manifests"]
    return {entry.get("annotations", {}).get("org.opencontainers.image.ref.name", "") for entry in entries}


def _make_base(scratch: Path) -> None:
    if buildah.call("images", "--quiet", "--filter", f"reference={BASE}").strip():
        return
    root = scratch / "root"
    try:
        debian_root.make(root, SUITE)
    except subprocess.CalledProcessError as error:
        raise ClusterError(f"{error}:\n{error.output[-3000:]}") from error
    container = buildah.call("from", "scratch").strip()
    buildah.call("add", "--quiet", container, str(root), "/")
    buildah.call("commit", "--quiet", "--rm", container, BASE)
    shutil.rmtree(root, ignore_errors=True)


def _collect_wheels(into: Path) -> None:
    """Offer this machine's Horovod wheel to the build, where it fits: built on the same Debian and Python."""
    system = platform.freedesktop_os_release().get("VERSION_CODENAME")
    if system == SUITE and sys.version_info[:2] == PYTHON:
        recipe = wheel_build.read_recipe()
        shutil.copy(wheel_build.wheel(recipe, folders.cache() / "horovod", progress=print), into)


def _files(roots: Iterable[Path]) -> list[Path]:
    found = [file for root in roots for file in ([root] if root.is_file() else root.rglob("*")) if file.is_file()]
    return sorted(file for file in found if "__pycache__" not in file.parts)
