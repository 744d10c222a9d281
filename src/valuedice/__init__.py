"""Imitation learning from a few demonstrations, without rewards, by off-policy distribution matching."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from valuedice.algorithms import BC, DAC, GAIL, PPO, SAC, Algorithm, Diagnosis, DualDICE, ValueDICE
    from valuedice.demos import Demos, Episode, load_demos
    from valuedice.energy import distance
    from valuedice.envs.episodes import evaluate
    from valuedice.envs.recording import collect_demos
    from valuedice.errors import DivergenceError, InputError, Interrupted
    from valuedice.policy import Policy, load_policy
    from valuedice.training.config import TrainConfig
    from valuedice.training.loggers import Logger, Progress
    from valuedice.training.run import Run, load_run, train, train_expert

__version__ = version("valuedice")

# Attributes are imported when they are first used: a policy must load and run without JAX.
_HOMES = {
    "BC": "algorithms",
    "DAC": "algorithms",
    "GAIL": "algorithms",
    "PPO": "algorithms",
    "SAC": "algorithms",
    "Algorithm": "algorithms",
    "Demos": "demos",
    "Diagnosis": "algorithms",
    "DivergenceError": "errors",
    "DualDICE": "algorithms",
    "Episode": "demos",
    "InputError": "errors",
    "Interrupted": "errors",
    "Logger": "training.loggers",
    "Policy": "policy",
    "Progress": "training.loggers",
    "Run": "training.run",
    "TrainConfig": "training.config",
    "ValueDICE": "algorithms",
    "collect_demos": "envs.recording",
    "distance": "energy",
    "evaluate": "envs.episodes",
    "load_demos": "demos",
    "load_policy": "policy",
    "load_run": "training.run",
    "train": "training.run",
    "train_expert": "training.run",
}

__all__ = [  # noqa: RUF022
    "ValueDICE", "BC", "DAC", "DualDICE", "GAIL", "PPO", "SAC", "Algorithm", "Diagnosis",
    "train", "train_expert", "load_run", "Run", "TrainConfig", "Progress", "Logger",
    "load_demos", "collect_demos", "distance", "Demos", "Episode",
    "evaluate", "load_policy", "Policy",
    "InputError", "DivergenceError", "Interrupted", "__version__",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'valuedice' has no attribute {name!r}")
    return getattr(import_module(f"valuedice.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
