"""The loop of a sweep: start what can be started, notice what has ended, try again once, show how far it is."""

from __future__ import annotations

import time
from collections import deque
from typing import Protocol

from valuedice.errors import Interrupted
from valuedice.sweep.board import Board
from valuedice.sweep.cell import Cell
from valuedice.sweep.table import Screen
from valuedice.sweep.worker import Outcome
from valuedice.training.stopping import deferred_signals

ATTEMPTS = 2
"""A failed run is tried again once."""
LOSSES = 5
"""How often a run goes on after its machine was lost."""
STATUS_SECONDS = 2.0


class Backend(Protocol):
    """Where runs are made."""

    @property
    def jobs(self) -> int:
        """How many runs go on side by side."""
        ...

    def free(self) -> int:
        """How many more runs can start now."""
        ...

    def start(self, cell: Cell) -> None:
        """Starts a run, or continues it."""
        ...

    def ended(self) -> list[tuple[str, Outcome]]:
        """The runs that have ended since the last call."""
        ...

    def stop(self) -> None:
        """Tells all runs to save and end. Those that have will be among `ended`."""
        ...

    def close(self) -> None:
        """Called once, at the end."""
        ...


def run_sweep(
    board: Board, chosen: list[str], backend: Backend, suite: str, screen: Screen, again: str
) -> list[str]:
    """Makes the chosen runs; returns those that are not finished then. `again` is the command that goes on."""
    board.chosen = chosen
    waiting = deque(name for name in chosen if board.entries[name].state != "finished")
    running: set[str] = set()
    losses: dict[str, int] = {}
    due = 0.0
    with deferred_signals() as signals, screen:
        while (waiting and signals.caught is None) or running:
            while waiting and signals.caught is None and backend.free() > 0:
                name = waiting.popleft()
                board.store.remove(f"{name}/failed.json")
                board.entries[name].state, board.entries[name].error = "running", ""
                backend.start(board.cells[name])
                running.add(name)
                screen.started(name)
            for name, outcome in backend.ended():
                running.discard(name)
                board.read(name)
                if settle(board, name, outcome, losses, stopping=signals.caught is not None):
                    waiting.append(name)
                screen.ended(name)
            if signals.caught is not None and running:
                backend.stop()
            if time.monotonic() >= due:
                for name in running:
                    board.read(name)
                board.write(suite, backend.jobs)
                due = time.monotonic() + STATUS_SECONDS
            screen.update(backend.jobs)
            time.sleep(0.2)
        board.write(suite, backend.jobs, over=True)
    if signals.caught is not None:
        raise Interrupted(signals.caught, f"stopped; all runs are saved; continue with: {again}")
    return [name for name in chosen if board.entries[name].state != "finished"]


def settle(board: Board, name: str, outcome: Outcome, losses: dict[str, int], *, stopping: bool = False) -> bool:
    """Notes how a run ended; returns whether it should start again."""
    entry = board.entries[name]
    if outcome.stopped and stopping:
        entry.state = "stopped"
        return False
    if outcome.exit_code == 0:
        entry.state, entry.done, entry.error = "finished", entry.total, ""
        return False
    entry.error = outcome.error
    # Someone else may have stopped the run, for example a machine that shuts down.
    if (outcome.lost or outcome.stopped) and losses.get(name, 0) < LOSSES:
        losses[name] = losses.get(name, 0) + 1
        entry.state = "waiting"
        return True
    entry.attempts += 1
    if entry.attempts < ATTEMPTS:
        entry.state = "waiting"
        return True
    entry.state = "failed"
    board.fail(name, outcome.exit_code)
    return False
