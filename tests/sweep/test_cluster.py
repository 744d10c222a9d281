"""Sweeps on a real Ray cluster: two nodes on this machine."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from sweeping import RUNS, begin, finish, has_rows, kill, processes, same_runs, suite, wait_for

RAY = str(Path(sys.executable).parent / "ray")
MARK = "VALUEDICE_TEST_NODE"
SECRET = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0123456789abcdef" * 4}
"""What all machines of a cluster share; otherwise Ray would write one to the user's home folder."""


def free_port() -> int:
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def mark(node: str) -> str:
    return f"{MARK}={node}-{os.getpid()}."


@pytest.fixture
def cluster(tmp_path_factory) -> Generator[Callable[[], str]]:
    """Starts a head, and on demand a second node; gives the address. What belongs to a node carries its mark."""
    port = free_port()
    folder = tmp_path_factory.mktemp("r")
    common = ["--num-cpus", "1", "--object-store-memory", "80000000", "--disable-usage-stats"]
    # Ray says at once that a node is dead; by default it waits for half a minute.
    quick = {"RAY_health_check_period_ms": "500", "RAY_health_check_failure_threshold": "4"} | SECRET

    def node(name: str, *args: str) -> None:
        variables = os.environ | quick | {MARK: mark(name).partition("=")[2]}
        said = subprocess.run(
            [RAY, "start", *args, *common], env=variables, capture_output=True, text=True, check=False
        )
        assert said.returncode == 0, said.stdout + said.stderr

    node("head", "--head", "--port", str(port), "--include-dashboard", "false", "--temp-dir", str(folder))

    def second() -> str:
        node("second", "--address", f"127.0.0.1:{port}")
        return f"127.0.0.1:{port}"

    yield second
    kill(mark("second"))
    kill(mark("head"))


@pytest.mark.slow
def test_runs_of_a_killed_node_go_on_elsewhere_and_equal_local_ones_bit_for_bit(tmp_path, cluster, undisturbed):
    address = cluster()
    out = tmp_path / "out"
    process = begin("sweep", suite(tmp_path), "--out", out, "--ray", address, **SECRET)
    wait_for(lambda: any(has_rows(out / name) for name in runs_of(mark("second"), tmp_path)))
    kill(mark("second"))
    said = finish(process)
    assert said.count("will be tried again (the machine was lost") == 1
    assert same_runs(out, undisturbed)


def runs_of(mark: str, folder: Path) -> list[str]:
    """The runs of a sweep that a node makes just now."""
    found: list[str] = []
    for number in processes(mark):
        with suppress(OSError):
            words = Path(f"/proc/{number}/cmdline").read_bytes().decode().split("\0")
            if "sweep-run" in words and str(folder) in words[-2]:
                found.append(RUNS[json.loads(words[-2])["cell"]["seed"]])
    return found


@pytest.mark.slow
def test_ctrl_c_stops_the_runs_of_a_cluster_and_saves_them(tmp_path, undisturbed):
    out = tmp_path / "out"
    args = ["sweep", suite(tmp_path), "--out", out, "--ray", "local", "--jobs", 2]
    process = begin(*args, **SECRET)
    wait_for(lambda: any(has_rows(out / name) for name in RUNS))
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate()
    assert process.returncode == 130, said
    assert not all((out / name / "summary.json").exists() for name in RUNS)
    finish(begin("sweep", suite(tmp_path), "--out", out, "--jobs", 2))
    assert same_runs(out, undisturbed)


def test_an_address_that_does_not_answer_is_refused_within_ten_seconds(refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    start = time.monotonic()
    message = refused("sweep", "quick", "--ray", f"127.0.0.1:{free_port()}", "--out", "out")
    assert "no Ray cluster answers at 127.0.0.1" in message
    assert time.monotonic() - start < 40


def test_what_listens_but_is_no_cluster_is_refused_within_ten_seconds(refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        start = time.monotonic()
        refused("sweep", "quick", "--ray", f"127.0.0.1:{silent.getsockname()[1]}", "--out", "out")
        # The grid itself takes a while on a busy machine.
        assert time.monotonic() - start < 40


@pytest.mark.parametrize("address", ["nonsense", "host:port", "127.0.0.1:99999", "a..b:1"])
def test_what_is_no_address_is_refused(refused, tmp_path, monkeypatch, address):
    monkeypatch.chdir(tmp_path)
    assert address in refused("sweep", "quick", "--ray", address, "--out", "out")
