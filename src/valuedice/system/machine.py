"""The machine: its cores, a place for compiled code, and what a run notes about both.

Loads neither numpy nor JAX: the number of threads must be set before they are loaded.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from valuedice.errors import InputError

# XLA reads the first when it starts, numpy's matrix products one of the others when numpy is loaded.
THREADS = ("NPROC", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads() -> int:
    """That a run computes with: as many as there are cores, unless it was told otherwise."""
    told = os.environ.get("NPROC", "")
    return int(told) if told.isdigit() and int(told) else cores()


def limit_threads(count: int) -> None:
    """Keeps this process to so many cores."""
    if count == threads():
        return
    if "numpy" in sys.modules:
        raise InputError(
            f"{count} threads come too late, numpy is loaded; set {' and '.join(THREADS[:2])} before Python starts"
        )
    os.environ.update(dict.fromkeys(THREADS, str(count)))


def keep_compiled() -> None:
    """Compiled code outlives the process, in the user's cache folder, unless JAX's own variable
    names another place.

    A folder for each version of the compiler, each kind of processor and each number of threads: a home folder is
    often shared between machines, and code for one of them may crash another; and how work is divided between
    threads is part of the compiled code, but not of JAX's name for it.
    """
    if os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        return
    import jax

    kind = (version("jax"), version("jaxlib"), platform.platform(), cpu("flags"), threads())
    folder = cache_folder() / "compiled" / hashlib.sha256(repr(kind).encode()).hexdigest()[:16]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    if os.access(folder, os.W_OK):
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def cache_folder() -> Path:
    """Of this library, for this user."""
    root = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(root) if root else Path.home() / ".cache") / "valuedice"


def cpu(field: str) -> str:
    """What the system says about its first processor, where it says anything."""
    about = Path("/proc/cpuinfo")
    lines = about.read_text().splitlines() if about.exists() else []
    found = [line.partition(":")[2].strip() for line in lines if line.startswith(field)]
    return found[0] if found else platform.processor()


def versions() -> dict[str, str]:
    """Of what decides the numbers."""
    names = ("valuedice", "jax", "jaxlib", "optax", "numpy", "gymnasium", "mujoco")
    return {"python": platform.python_version()} | {name: version(name) for name in names}


def hardware() -> dict[str, Any]:
    """Of this machine."""
    return {
        "machine": platform.machine(),
        "processor": cpu("model name"),
        "cores": cores(),
        "system": platform.platform(),
    }
