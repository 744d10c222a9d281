"""Whether a value that was read from a file has the type of a setting."""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints


def fits(value: Any, form: Any) -> bool:
    """Whether a value from JSON or TOML has the type that a dataclass declares."""
    kinds = get_args(form)
    if form is Any:
        return True
    if get_origin(form) is Literal:
        return value in kinds
    if get_origin(form) is tuple:
        return isinstance(value, list) and all(fits(part, kinds[0]) for part in value)
    if get_origin(form) is list:
        return isinstance(value, list) and all(fits(part, kinds[0]) for part in value)
    if get_origin(form) is dict:
        return isinstance(value, dict) and all(fits(part, kinds[1]) for part in value.values())
    if is_dataclass(form):
        hints = get_type_hints(form)
        return isinstance(value, dict) and all(fits(part, hints.get(name)) for name, part in value.items())
    if kinds:
        return any(fits(value, kind) for kind in kinds)
    return type(value) in {float: (float, int)}.get(form, (form,))
