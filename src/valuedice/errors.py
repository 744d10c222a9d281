"""The error that a user sees."""

from __future__ import annotations


class InputError(ValueError):
    """Something the user gave cannot be used; the message is one line: what is wrong, and what to do."""
