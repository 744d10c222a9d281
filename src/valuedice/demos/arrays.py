"""Casts raw arrays to the types of demonstrations; an error names the array and the row.

`name` is the name of the array in error messages, with the file in front. Rows and columns count from 0.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

import numpy as np

from valuedice.errors import InputError

MOST_ACTIONS = 10_000
"""Most discrete actions of a task: each is an output of the policy and a column of the encoded actions."""


def check_rows(where: str, arrays: Mapping[str, np.ndarray]) -> int:
    """The number of rows that all arrays share."""
    for name, array in arrays.items():
        if array.ndim == 0:
            raise InputError(f"{where}: {name} is a scalar; store an array with one row per step")
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise InputError(f"{where}: rows of different length: {listed}; store one row per step in every array")
    rows = next(iter(lengths.values()))
    if rows == 0:
        raise InputError(f"{where}: holds no rows; record at least one step")
    return rows


def as_matrix(name: str, array: np.ndarray) -> np.ndarray:
    """Rows of features as float32."""
    _check_numbers(name, array)
    if array.ndim == 1:
        raise InputError(f"{name} has shape {array.shape}, not (steps, features); reshape one feature to (-1, 1)")
    if array.ndim > 2:
        raise InputError(
            f"{name} has shape {array.shape}, not (steps, features); flatten the rows, or encode images into "
            "vectors first"
        )
    if array.shape[1] == 0:
        raise InputError(f"{name} has shape {array.shape}: no features; store at least one column")
    return _float32(array)


def as_actions(name: str, array: np.ndarray) -> np.ndarray:
    """Discrete actions (one integer or boolean per row) as int64 (steps,), others as float32 (steps, dims)."""
    _check_numbers(name, array)
    one_column = array.ndim == 1 or (array.ndim == 2 and array.shape[1] == 1)
    if array.dtype.kind == "f" or not one_column:
        return as_matrix(name, array[:, None] if array.ndim == 1 else array)
    actions = array.reshape(-1)
    wrong = (actions < 0) | (actions >= MOST_ACTIONS)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InputError(
            f"{name} holds the discrete action {actions[row]} at row {row}; "
            f"number actions from 0 to at most {MOST_ACTIONS - 1:,}, or store continuous ones as floats"
        )
    return actions.astype(np.int64, copy=False)


def as_vector(name: str, array: np.ndarray) -> np.ndarray:
    """One number per row as float32."""
    return _float32(_one_a_row(name, array))


def as_flags(name: str, array: np.ndarray) -> np.ndarray:
    """One boolean per row, from booleans or from the numbers 0 and 1."""
    array = _one_a_row(name, array)
    wrong = (array != 0) & (array != 1)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InputError(f"{name} holds {array[row]} at row {row}; store only 0 and 1, or booleans")
    return array.astype(bool)


def first_nonfinite(array: np.ndarray) -> tuple[int, ...] | None:
    """Row (and column) of the first NaN or infinity."""
    bad = ~np.isfinite(array)
    return tuple(int(i) for i in np.unravel_index(bad.argmax(), bad.shape)) if bad.any() else None


def describe(array: np.ndarray, index: tuple[int, ...]) -> str:
    """The entry at an index of an array, and its place: "NaN at row 3, column 1"."""
    value = array[index]
    # A cast to float32 turns numbers out of its range into infinity.
    text = "NaN" if np.isnan(value) else "infinity (or beyond float32)" if np.isinf(value) else f"{value:g}"
    return f"{text} at " + ", ".join(f"{axis} {i}" for axis, i in zip(("row", "column"), index, strict=False))


def gaps(observations: np.ndarray, next_observations: np.ndarray) -> np.ndarray:
    """For each row but the last, whether its s′ differs from the s of the next row."""
    after, before = next_observations[:-1], observations[1:]
    same = (after == before) | (np.isnan(after) & np.isnan(before))
    return ~same.all(1)


def _check_numbers(name: str, array: np.ndarray) -> None:
    if array.dtype.kind not in "biuf":
        kind = textwrap.shorten(str(array.dtype), 60, placeholder="…")
        raise InputError(f"{name} holds {kind}, not numbers; store floats, integers or booleans")


def _one_a_row(name: str, array: np.ndarray) -> np.ndarray:
    _check_numbers(name, array)
    if array.ndim != 1 and array.shape[1:] != (1,):
        raise InputError(f"{name} has shape {array.shape}; store one number per row, shape (steps,)")
    return array.reshape(-1)


def _float32(array: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore"):  # casting a signalling NaN is invalid
        return array.astype(np.float32, copy=False)
