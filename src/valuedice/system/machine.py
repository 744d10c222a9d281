"""The machine: its cores, a cache for compiled code, and the facts that a run records.

Imports neither numpy nor JAX: the number of threads must be set before they are imported.
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

# XLA reads the first when it starts; numpy's BLAS reads one of the others when numpy is imported.
THREADS = ("NPROC", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads() -> int:
    """The number of threads of a run: NPROC if it is set, else the number of cores."""
    number = os.environ.get("NPROC", "")
    return int(number) if number.isdigit() and int(number) else cores()


def limit_threads(count: int) -> None:
    """Limits this process to `count` threads; must be called before numpy is imported."""
    if count == threads():
        return
    if "numpy" in sys.modules:
        raise InputError(
            f"`threads` is {count}, but numpy is loaded; set {' and '.join(THREADS[:2])} before Python starts"
        )
    os.environ.update(dict.fromkeys(THREADS, str(count)))


def keep_compiled() -> None:
    """Keeps compiled code in the user's cache folder, unless JAX_COMPILATION_CACHE_DIR names another one.

    Each version of the compiler, kind of processor and number of threads has its own folder. Machines often share a
    home folder, and code for one may crash another. The number of threads is part of the compiled code, but not of
    JAX's cache key.
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
    """The cache folder of this library for this user."""
    root = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(root) if root else Path.home() / ".cache") / "valuedice"


def cpu(field: str) -> str:
    """A field of /proc/cpuinfo for the first processor; without that file, the name that Python knows."""
    about = Path("/proc/cpuinfo")
    lines = about.read_text().splitlines() if about.exists() else []
    found = [line.partition(":")[2].strip() for line in lines if line.startswith(field)]
    return found[0] if found else platform.processor()


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that affect results."""
    names = ("valuedice", "jax", "jaxlib", "optax", "numpy", "gymnasium", "mujoco")
    return {"python": platform.python_version()} | {name: version(name) for name in names}


def hardware() -> dict[str, Any]:
    """Facts about this machine."""
    return {
        "machine": platform.machine(),
        "processor": cpu("model name"),
        "cores": cores(),
        "system": platform.platform(),
    }
