"""Threads, and compiled code that outlives the process: both concern whole processes, so these tests start some."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from valuedice.cli import threads_asked
from valuedice.errors import InputError
from valuedice.system import machine
from valuedice.system.machine import THREADS, cache_folder, cores, limit_threads, threads

CLEAN = {name: value for name, value in os.environ.items() if name not in (*THREADS, "JAX_COMPILATION_CACHE_DIR")}

BUSY = """
import time
from valuedice.cli import threads_asked
from valuedice.system.machine import limit_threads
limit_threads(threads_asked(["--threads", "1"]))
import jax, jax.numpy as jnp, numpy as np
x = jnp.ones((1500, 1500))
y = np.ones((1500, 1500), np.float32)
work = jax.jit(lambda x: x @ x)
work(x).block_until_ready()
begin, spent = time.perf_counter(), time.process_time()
for _ in range(8):
    work(x).block_until_ready()
    y @ y
print((time.process_time() - spent) / (time.perf_counter() - begin))
"""


def run(code: str, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], env=CLEAN | variables, capture_output=True, text=True, check=True, timeout=120
    )
    return done.stdout.strip()


def test_one_thread_keeps_xla_and_numpy_to_one_core():
    assert float(run(BUSY)) < 1.15


def test_threads_are_as_many_as_cores_unless_the_environment_says_otherwise(monkeypatch):
    for number, expected in (("", cores()), ("7", 7), ("many", cores())):
        monkeypatch.setenv("NPROC", number)
        assert threads() == expected


def test_threads_that_are_limited_too_late_are_refused(monkeypatch):
    monkeypatch.delenv("NPROC", raising=False)
    with pytest.raises(InputError, match="but numpy is loaded; set NPROC and OPENBLAS_NUM_THREADS"):
        limit_threads(cores() + 1)
    limit_threads(cores())


def test_a_resumed_run_takes_the_threads_that_it_had(tmp_path):
    (tmp_path / "config.json").write_text('{"threads": 5}')
    assert threads_asked(["--resume", str(tmp_path)]) == 5
    assert threads_asked([f"--resume={tmp_path}", "--threads=2"]) == 2


COMPILES = """
import jax
from valuedice.system.machine import keep_compiled
keep_compiled()
jax.jit(lambda x: x * 3 + 1)(2.0)
print(jax.config.jax_compilation_cache_dir)
"""


def test_compiled_code_is_kept_in_the_users_cache_and_used_again(tmp_path):
    kept: list[dict[Path, int]] = []
    for _ in range(2):
        folder = Path(run(COMPILES, XDG_CACHE_HOME=str(tmp_path)))
        assert folder.is_relative_to(tmp_path / "valuedice" / "compiled")
        kept.append({path: path.stat().st_mtime_ns for path in folder.glob("*-cache")})
    assert kept[0] == kept[1] != {}


@pytest.mark.parametrize(
    ("name", "other"),
    [("version", lambda _: "0.0"), ("cpu", lambda _: "another one"), ("threads", lambda: 99)],
)
def test_other_versions_processors_and_threads_have_folders_of_their_own(name, other, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    chosen: dict[str, object] = {}
    monkeypatch.setattr(jax.config, "update", chosen.__setitem__)
    machine.keep_compiled()
    before = chosen["jax_compilation_cache_dir"]
    monkeypatch.setattr(machine, name, other)
    machine.keep_compiled()
    assert chosen["jax_compilation_cache_dir"] != before


def test_a_folder_that_jax_was_told_of_is_respected_and_one_that_cannot_be_made_is_done_without(tmp_path):
    place, blocked = str(tmp_path / "mine"), tmp_path / "file"
    assert run(COMPILES, JAX_COMPILATION_CACHE_DIR=place, XDG_CACHE_HOME=str(tmp_path / "xdg")) == place
    assert not (tmp_path / "xdg").exists()
    blocked.write_text("in the way")
    assert run(COMPILES, XDG_CACHE_HOME=str(blocked)) == "None"


def test_the_cache_is_in_the_home_folder_unless_the_system_names_another(monkeypatch):
    for root, expected in (("", Path.home() / ".cache" / "valuedice"), ("/cache", Path("/cache/valuedice"))):
        monkeypatch.setenv("XDG_CACHE_HOME", root)
        assert cache_folder() == expected
