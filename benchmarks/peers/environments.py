"""The libraries that are compared, and a virtual environment for each, made when first needed."""

import hashlib
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

TORCH = "torch==2.13.0"
# FedJAX uses functions that later versions of JAX no longer have.
OLD_JAX = (
    "jax==0.4.25",
    "jaxlib==0.4.25",
    "dm-haiku==0.0.12",
    "optax==0.2.2",
    "numpy<2",
    "scipy<1.13",
)
VISION = "torchvision==0.28.0"  # imported by two libraries that use it for data sets only


@dataclass(frozen=True)
class Peer:
    """A library: its script in `adapters`, what it needs, the methods that it has."""

    adapter: str
    requirements: tuple[str, ...] = ()  # none: runs where compositefl is installed
    methods: tuple[str, ...] = ("fedavg", "scaffold")


PEERS = {
    "compositefl": Peer("compositefl_itself"),
    "hand-written JAX": Peer("jax_by_hand"),
    "plain PyTorch loop": Peer("pytorch_loop", (TORCH, "numpy")),
    "pfl": Peer("pfl_research", ("pfl==0.6.0", TORCH)),
    "fluke": Peer("fluke_fl", ("fluke-fl==0.8.1", TORCH, VISION)),
    "FedLab": Peer("fedlab_standalone", ("fedlab==1.3.0", TORCH, VISION, "numpy")),
    "Flower with Ray": Peer("flower_ray", ("flwr[simulation]==1.41.0", TORCH), ("fedavg",)),
    "FedJAX": Peer("fedjax_library", ("fedjax==0.0.17", *OLD_JAX), ("fedavg",)),
}


class CannotInstall(Exception):
    """Says why."""


def python_of(name: str, cache: Path) -> str:
    """The interpreter of a library's environment, which is made if it is not there."""
    requirements = PEERS[name].requirements
    if not requirements:
        return sys.executable
    digest = hashlib.sha256("\n".join(requirements).encode()).hexdigest()[:8]
    folder = cache / f"{PEERS[name].adapter}-{digest}"
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        print(f"making an environment for {name} in {folder}", file=sys.stderr, flush=True)
        _call([sys.executable, "-m", "venv", "--clear", str(folder)])
        _call([str(python), "-m", "pip", "install", "--quiet", *requirements])
        (folder / "complete").write_text("\n".join(requirements) + "\n")
    return str(python)


def _call(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.splitlines() or ["no message"]
        errors = [line for line in said if line.startswith("ERROR: ") and "Exception" not in line]
        raise CannotInstall((errors or said[-1:])[0].removeprefix("ERROR: ")[:120])
