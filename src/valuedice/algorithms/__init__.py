"""One file an algorithm; the union of them is the registry."""

from valuedice.algorithms.gail import GAIL
from valuedice.algorithms.ppo import PPO
from valuedice.algorithms.sac import SAC
from valuedice.algorithms.value_dice import ValueDICE

Algorithm = ValueDICE | GAIL
"""Every algorithm that `train` accepts; a new one is one file and one name here."""

ALGORITHMS: dict[str, type[Algorithm]] = {"value-dice": ValueDICE, "gail": GAIL}
"""Names on the command line."""

Learning = Algorithm | SAC
"""Everything that can learn; SAC, from rewards, makes experts."""

__all__ = ["ALGORITHMS", "GAIL", "PPO", "SAC", "Algorithm", "Learning", "ValueDICE"]
