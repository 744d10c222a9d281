"""Imitation learning from a few demonstrations, without rewards, by off-policy distribution matching."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.metadata import version
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from valuedice.algorithms import BC, DAC, GAIL, PPO, SAC, DualDICE, ValueDICE
    from valuedice.collect import collect_demos
    from valuedice.demos import Demos, Episode, load_demos
    from valuedice.errors import InputError
    from valuedice.evaluate import evaluate
    from valuedice.policy import Policy, load_policy
    from valuedice.train import Run, train, train_expert

__version__ = version("valuedice")

# Attributes are imported when they are first used: a policy must load and run without JAX.
_HOMES = {
    "BC": "algorithms",
    "DAC": "algorithms",
    "DualDICE": "algorithms",
    "Demos": "demos",
    "Episode": "demos",
    "GAIL": "algorithms",
    "InputError": "errors",
    "PPO": "algorithms",
    "Policy": "policy",
    "Run": "train",
    "SAC": "algorithms",
    "ValueDICE": "algorithms",
    "collect_demos": "collect",
    "evaluate": "evaluate",
    "load_demos": "demos",
    "load_policy": "policy",
    "train": "train",
    "train_expert": "train",
}

__all__ = [  # noqa: RUF022
    "ValueDICE", "BC", "DAC", "DualDICE", "GAIL", "PPO", "train", "Run", "SAC", "train_expert",
    "load_demos", "collect_demos", "Demos", "Episode",
    "evaluate", "load_policy", "Policy",
    "InputError", "__version__",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'valuedice' has no attribute {name!r}")
    return getattr(import_module(f"valuedice.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)


class _Package(ModuleType):
    """`train` and `evaluate` name modules and functions; importing the module must not hide the function."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _HOMES and isinstance(value, ModuleType):
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
