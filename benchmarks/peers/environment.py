"""An environment of its own for the peers, so that what they need never meets what the library needs.

torch comes first and pinned, so that no peer's requirements bring another build of it. Every peer is installed by itself: one
that cannot be is recorded with pip's reason, and the others go on.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PEERS = {
    "scikit-learn": ["scikit-learn"],
    "probmetrics": [
        "probmetrics",
        "numba",
        "scipy",
    ],  # numba is optional there, but its calibrators import it
    "netcal": ["netcal"],
    "torch-uncertainty": ["torch-uncertainty", "tqdm"],
    "uncertainty-calibration": ["uncertainty-calibration"],
    # It declares Python 3.12 and runs on 3.11; what is declared for 3.11 no longer installs.
    "dirichletcal": ["--ignore-requires-python", "dirichletcal"],
}
EXTRAS = "[plots,fast]"
FOUNDATION = ["torch", "-e", f"{ROOT}{EXTRAS}"]
# One thread for everyone: OpenMP and the libraries that do not listen to it.
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
) | {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"}


def python_of(env: Path) -> Path:
    return env / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def is_current(env: Path) -> bool:
    """Whether this process runs in ``env``."""
    return Path(sys.prefix).resolve() == env.resolve()


def make(env: Path) -> None:
    """Create ``env`` and install what is missing; a peer that failed before is tried again."""
    record = env / "peers.json"
    done = json.loads(record.read_text()) if record.exists() else {}
    if not python_of(env).exists():
        subprocess.run([sys.executable, "-m", "venv", str(env)], check=True)
    own = f"monocal{EXTRAS}"
    if own not in done:
        reason = _install(env, FOUNDATION)
        if reason:
            sys.exit(f"The environment could not be made: {reason}")
        done[own] = ""
    for peer, requirements in PEERS.items():
        if done.get(peer) != "":
            print(f"installing {peer}", file=sys.stderr, flush=True)
            done[peer] = _install(env, requirements)
            record.write_text(json.dumps(done, indent=1))


def why_missing(env: Path) -> dict[str, str]:
    """Reason for each peer that could not be installed."""
    return {peer: reason for peer, reason in json.loads((env / "peers.json").read_text()).items() if reason}


def _install(env: Path, requirements: list[str]) -> str:
    """Nothing, or why it failed."""
    command = [str(python_of(env)), "-m", "pip", "install", "-q", *requirements]
    done = subprocess.run(
        [*command, "-c", str(ROOT / "constraints-test.txt")], capture_output=True, text=True, check=False
    )
    return "" if done.returncode == 0 else pip_reason(done.stderr)


def pip_reason(stderr: str) -> str:
    """The line of pip's complaint that says most."""
    lines = [line.strip() for line in stderr.splitlines() if "error" in line.lower()]
    telling = [line for line in lines if "subprocess-exited" not in line and "originates" not in line]
    return (telling or lines or stderr.splitlines() or ["pip gave no reason"])[-1][:300]


def machine() -> dict[str, object]:
    """What ran the benchmark."""
    try:
        with open("/proc/cpuinfo") as file:
            model = next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        model = platform.processor() or platform.machine()
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def versions() -> dict[str, str]:
    """Of every package in this environment."""
    named = ((d.metadata["Name"].lower().replace("_", "-"), d.version) for d in metadata.distributions())
    return dict(sorted(named))
