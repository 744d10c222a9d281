"""Runs on a Ray cluster: one task for each run, which starts the same process as on one machine."""

from __future__ import annotations

import os
import re
import signal
import socket
import tempfile
import threading
import time
from dataclasses import dataclass
from typing import Any

from valuedice.errors import InputError
from valuedice.sweep.cell import Cell
from valuedice.sweep.worker import INTERRUPTED, Outcome, Request, outcome, start

ANSWER_SECONDS = 10.0
"""How long a cluster may take to answer."""
SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SETTINGS
"""The first words of HTTP/2, which Ray speaks; it answers with settings of its own."""
JOIN_SECONDS = 60.0
"""How long it may take to join a cluster that has answered."""
SAVE_SECONDS = 60.0
"""How long a run that was told to stop may take to save."""


@dataclass
class Task:
    """A run that goes on somewhere."""

    name: str
    ref: Any
    told: bool = False


class RayBackend:
    """As many runs side by side as the cluster has cores for; it may grow and shrink."""

    def __init__(self, out: str, address: str, threads: int, jobs: int | None) -> None:
        self.ray = connected(address, jobs, threads)
        self.out, self.threads = out, threads
        self._remote = self.ray.remote(num_cpus=threads, max_retries=0)(make_run)
        self._running: list[Task] = []
        if not self.slots():
            self.close()
            raise InputError(f"`threads` is {threads}, but the cluster has no such machine; lower it")

    def slots(self) -> int:
        """Runs that the cluster's machines have cores for."""
        alive = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        return sum(int(resources.get("CPU", 0)) // self.threads for resources in alive)

    @property
    def jobs(self) -> int:
        """How many runs go on side by side."""
        return max(1, self.slots())

    def free(self) -> int:
        """Machines may join or leave at any time."""
        return self.slots() - len(self._running)

    def start(self, cell: Cell) -> None:
        """Hands the run to the cluster."""
        request = Request(cell.as_json(), self.out, self.threads)
        self._running.append(Task(cell.name, self._remote.remote(vars(request))))

    def ended(self) -> list[tuple[str, Outcome]]:
        """Tasks that are over. A lost machine is no failure of its runs."""
        if not self._running:
            return []
        over, _ = self.ray.wait([task.ref for task in self._running], num_returns=len(self._running), timeout=0)
        found: list[tuple[str, Outcome]] = []
        for task in [task for task in self._running if task.ref in over]:
            self._running.remove(task)
            found.append((task.name, self._outcome(task)))
        return found

    def _outcome(self, task: Task) -> Outcome:
        try:
            return Outcome(*self.ray.get(task.ref))
        except (self.ray.exceptions.TaskCancelledError, KeyboardInterrupt):
            return Outcome(INTERRUPTED[1])
        except self.ray.exceptions.RayTaskError as error:
            return Outcome(1, str(error).strip().splitlines()[-1])
        except self.ray.exceptions.RayError as error:
            reason = type(error).__name__
            return (
                Outcome(INTERRUPTED[1]) if task.told else Outcome(1, f"the machine was lost ({reason})", lost=True)
            )

    def stop(self) -> None:
        """Cancels each task once; it passes that on to its run, which saves."""
        for task in self._running:
            if not task.told:
                self.ray.cancel(task.ref, force=False)
                task.told = True

    def close(self) -> None:
        """Leaves the cluster, which goes on."""
        self.stop()
        self.ray.shutdown()


def make_run(request: dict[str, Any]) -> tuple[int, str]:
    """What a task does: starts the process of the run, waits for it, and stops it if it is cancelled itself."""
    with tempfile.TemporaryFile() as log:
        process = start(Request(**request), log)
        try:
            while process.poll() is None:
                time.sleep(0.2)
        except BaseException:
            process.send_signal(signal.SIGTERM)
            process.wait(SAVE_SECONDS)
            raise
        log.seek(0)
        ended = outcome(process, log.read())
    return ended.exit_code, ended.error


def connected(address: str, jobs: int | None, threads: int) -> Any:
    """Ray, joined to the cluster at an address; `local` makes a new one on this machine."""
    try:
        import ray
    except ImportError:
        raise InputError("Ray is not installed; install it with: pip install 'valuedice[ray]'") from None
    # Ray's own warnings about coming versions say nothing to a user of this library.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address == "local":
        # The address, because a variable could name another one.
        ray.init(address="local", num_cpus=jobs and jobs * threads, include_dashboard=False, **quiet)
        return ray
    if address != "auto":
        check_answer(address)
    failure: list[BaseException] = []

    def join() -> None:
        try:
            ray.init(address=address, **quiet)
        except BaseException as error:
            failure.append(error)

    # In a thread of its own: joining what is no Ray cluster can wait for ever.
    thread = threading.Thread(target=join, daemon=True)
    thread.start()
    thread.join(JOIN_SECONDS)
    if failure and "authentication token" in str(failure[0]).lower():
        raise InputError(
            f"the Ray cluster at {address} asks for its token; set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN"
        )
    if thread.is_alive() or failure:
        reason = " ".join(str(failure[0]).split())[:200] if failure else f"no answer within {JOIN_SECONDS:.0f} s"
        raise InputError(f"cannot join the Ray cluster at {address} ({reason}); is it running? see `ray status`")
    return ray


def check_answer(address: str) -> None:
    """Refuses an address at which nothing listens, where Ray itself would wait for minutes."""
    found = re.fullmatch(r"(?:ray://)?(\[.+\]|[^:/]+):(\d{1,5})", address)
    if found is None:
        raise InputError(f"{address!r} is no address of a Ray cluster; write HOST:PORT, auto or local")
    try:
        with socket.create_connection((found[1].strip("[]"), int(found[2])), ANSWER_SECONDS) as connection:
            connection.settimeout(ANSWER_SECONDS)
            connection.sendall(HTTP2)
            if connection.recv(len(SETTINGS))[3:4] != SETTINGS[3:4]:
                raise OSError("something else listens there")
    except (OSError, OverflowError, ValueError) as error:
        raise InputError(
            f"no Ray cluster answers at {address} ({error}); start one with: ray start --head --port {found[2]}"
        ) from None
