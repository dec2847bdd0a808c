"""A program of the tests that is written in Go: built from the module proxy once, and kept outside the checkout."""

import hashlib
import subprocess
from pathlib import Path

import pytest

from testbed.debian_programs import needed_go
from testbed.kube import folders


def go_program(sources: Path) -> Path:
    """The program in a folder with `main.go`, `go.mod` and `go.sum`. Skips the test, with the reason, without Go."""
    content = b"".join((sources / name).read_bytes() for name in ("main.go", "go.mod", "go.sum"))
    binary = folders.cache() / "go" / f"{sources.name}-{hashlib.sha256(content).hexdigest()[:16]}"
    if binary.exists():
        return binary
    go = needed_go()
    binary.parent.mkdir(parents=True, exist_ok=True)
    with folders.alone(binary.name):  # several test processes ask at once
        if not binary.exists():
            made = binary.with_suffix(".new")
            # -mod=readonly: exactly what go.sum vouches for.
            build = [go, "build", "-mod=readonly", "-trimpath", "-ldflags=-s -w", "-o", str(made), "."]
            done = subprocess.run(build, cwd=sources, capture_output=True, text=True, check=False)
            if done.returncode:
                pytest.skip(f"{sources.name} cannot be built: {done.stderr[-500:]}")
            made.rename(binary)
    return binary
