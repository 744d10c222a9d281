"""The algorithms, one per file. `train` takes any object that implements `protocol.Algorithm`; these have names."""

from collections.abc import Callable
from typing import Any

from valuedice.algorithms.bc import BC
from valuedice.algorithms.dac import DAC
from valuedice.algorithms.dual_dice import DualDICE
from valuedice.algorithms.gail import GAIL
from valuedice.algorithms.ppo import PPO
from valuedice.algorithms.protocol import Algorithm, AnyAlgorithm, Diagnosis
from valuedice.algorithms.sac import SAC
from valuedice.algorithms.value_dice import ValueDICE

ALGORITHMS: dict[str, Callable[..., AnyAlgorithm]] = {
    "value-dice": ValueDICE,
    "bc": BC,
    "dac": DAC,
    "dual-dice": DualDICE,
    "gail": GAIL,
}
"""Algorithms of `valuedice train`: they learn from demonstrations."""

REWARD_LEARNERS: dict[str, Callable[..., AnyAlgorithm]] = {"sac": SAC, "ppo": PPO}
"""Algorithms of `valuedice expert`: they learn from rewards."""

__all__ = [
    "ALGORITHMS",
    "BC",
    "DAC",
    "GAIL",
    "PPO",
    "REWARD_LEARNERS",
    "SAC",
    "Algorithm",
    "AnyAlgorithm",
    "Diagnosis",
    "DualDICE",
    "ValueDICE",
    "algorithm_name",
    "preset_of",
]


def algorithm_name(algorithm: AnyAlgorithm) -> str:
    """The name on the command line; for any other algorithm, the name of its class."""
    named = ALGORITHMS | REWARD_LEARNERS
    return next((name for name, kind in named.items() if type(algorithm) is kind), type(algorithm).__qualname__)


def preset_of(name: str, preset: str | None) -> AnyAlgorithm:
    """A shipped algorithm with its own settings, or with those of the paper."""
    kind: Any = ALGORITHMS[name]
    return kind.paper() if preset == "paper" else kind()
