"""The ways in which a run ends early, each with a message for the user. In a message, backticks mark a setting."""

from __future__ import annotations


class InputError(ValueError):
    """Something the user gave cannot be used; the message is one line: what is wrong, and what to do."""


class DivergenceError(RuntimeError):
    """Training diverged and was stopped."""


class Interrupted(KeyboardInterrupt):
    """A signal ended the run between two updates, after everything was saved."""

    def __init__(self, signum: int, message: str) -> None:
        super().__init__(message)
        self.signum = signum
