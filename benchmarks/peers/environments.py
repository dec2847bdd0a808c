"""Virtual environments with the packages that the product is compared to, which it does not depend on.

Each is made once, in `${XDG_CACHE_HOME:-~/.cache}/hvd-elastic/python`, and made anew when its requirements change. It
sees what is installed beside this program, too: so torch is the same in all of them, and is not downloaded again.
"""

import hashlib
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Final

from benchmarks.staging import cache_folder

REQUIREMENTS: Final = Path(__file__).parent / "requirements"


def installed(name: str) -> Path:
    """Python of the environment `name`, made if it is not there.

    Raises CalledProcessError and OSError if it cannot be made.
    """
    requirements = REQUIREMENTS / f"{name}.txt"
    folder = cache_folder() / "python" / f"{name}-{key(requirements.read_bytes())}"
    python, done = folder / "bin" / "python", folder / "complete"
    if not done.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        _see_ours(python)
        pip = [str(python), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, "--requirement", str(requirements), "--constraint", str(_pinned(folder))], check=True)
        done.touch()
    return python


def key(requirements: bytes) -> str:
    """Another one if the requirements or what they are installed beside have changed."""
    beside = f"{sys.version_info[:2]} {sysconfig.get_path('purelib')} torch {_torch_version()}"
    return hashlib.sha256(requirements + beside.encode()).hexdigest()[:16]


def _see_ours(python: Path) -> None:
    """Add the folder of this program's packages behind the environment's own."""
    asked = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    own = subprocess.run(asked, check=True, text=True, capture_output=True).stdout.strip()
    (Path(own) / "beside.pth").write_text(f"{sysconfig.get_path('purelib')}\n")


def _pinned(folder: Path) -> Path:
    """A file that keeps pip from replacing torch."""
    constraint = folder / "torch.txt"
    constraint.write_text(f"torch=={_torch_version()}\n")
    return constraint


def _torch_version() -> str:
    from importlib.metadata import version

    return version("torch")
