"""One file an algorithm; the union of them is the registry."""

from valuedice.algorithms.sac import SAC
from valuedice.algorithms.value_dice import ValueDICE

Algorithm = ValueDICE
"""Every algorithm that `train` accepts; a new one is one file and one name here."""

ALGORITHMS: dict[str, type[Algorithm]] = {"value-dice": ValueDICE}
"""Names on the command line."""

Learning = Algorithm | SAC
"""Everything that can learn; SAC, from rewards, makes experts."""

__all__ = ["ALGORITHMS", "SAC", "Algorithm", "Learning", "ValueDICE"]
