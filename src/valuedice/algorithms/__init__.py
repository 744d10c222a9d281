"""One file an algorithm; the union of them is the registry."""

from valuedice.algorithms.bc import BC
from valuedice.algorithms.dac import DAC
from valuedice.algorithms.dual_dice import DualDICE
from valuedice.algorithms.gail import GAIL
from valuedice.algorithms.ppo import PPO
from valuedice.algorithms.sac import SAC
from valuedice.algorithms.value_dice import ValueDICE

Algorithm = ValueDICE | BC | DAC | DualDICE | GAIL
"""Every algorithm that `train` accepts; a new one is one file and one name here."""

ALGORITHMS: dict[str, type[Algorithm]] = {
    "value-dice": ValueDICE,
    "bc": BC,
    "dac": DAC,
    "dual-dice": DualDICE,
    "gail": GAIL,
}
"""Names on the command line."""

Learning = Algorithm | SAC
"""Everything that can learn; SAC, from rewards, makes experts."""

__all__ = ["ALGORITHMS", "BC", "DAC", "GAIL", "PPO", "SAC", "Algorithm", "DualDICE", "Learning", "ValueDICE"]
