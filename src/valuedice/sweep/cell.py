"""A cell: one run of a grid, in a form that can be written down, compared and started anywhere."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any

from valuedice.algorithms import ALGORITHMS, AnyAlgorithm, preset_of
from valuedice.algorithms.settings import settings_of, with_settings
from valuedice.envs.make import file_name
from valuedice.training.config import TrainConfig, kept_by
from valuedice.training.json_types import fits

RING = "ring"
"""The study of the Ring MDP: exact, so it takes no demonstrations and no settings."""
NOT_SETTINGS = {
    "demos",
    "env",
    "episodes",
    "subsample",
    "seed",
    "threads",
    "target_return",
    "out",
    "resume",
    "quiet",
    "on_evaluation",
    "loggers",
}
"""Fields of `TrainConfig` that the grid itself sets."""


@dataclass(frozen=True)
class Cell:
    """One run of a grid."""

    task: str
    contestant: str
    """Which algorithm with which settings; part of the folder's name."""
    title: str
    """The contestant in figures and tables."""
    algorithm: str
    preset: str
    episodes: int | None
    subsample: int
    seed: int
    settings: dict[str, Any]
    """Settings of `train` and of the algorithm, side by side."""

    @property
    def name(self) -> str:
        """The name of the run folder."""
        data = [] if self.algorithm == RING else [f"{self.episodes or 'all'}ep"]
        data += [] if self.subsample == 1 else [f"every{self.subsample}"]
        return "-".join([file_name(self.task), *data, self.contestant, f"seed{self.seed}"])

    def built(self) -> tuple[AnyAlgorithm, TrainConfig]:
        """The algorithm and the run, as `train` takes them."""
        algorithm = preset_of(self.algorithm, self.preset)
        known = settings_of(algorithm)
        own = {name: value for name, value in self.settings.items() if name in known}
        rest: dict[str, Any] = {"keep": kept_by(self.preset)}
        rest |= {name: value for name, value in self.settings.items() if name not in known}
        config = TrainConfig(
            env=self.task, episodes=self.episodes, subsample=self.subsample, seed=self.seed, quiet=True, **rest
        )
        return with_settings(algorithm, own), config

    @property
    def total(self) -> int:
        """Steps (offline: updates) of the run; 0 if it does not count."""
        if self.algorithm == RING:
            return 0
        algorithm, config = self.built()
        return config.resolved(algorithm).total

    def about(self) -> str:
        """The run in a few words."""
        words = [self.algorithm, *(["the paper's settings"] if self.preset == "paper" else [])]
        return ", ".join([*words, *(f"{key} {value}" for key, value in self.settings.items() if key != "demos")])

    def as_json(self) -> dict[str, Any]:
        """As `sweep.json` holds it."""
        return asdict(self)

    def changes(self, old: Cell) -> dict[str, tuple[Any, Any]]:
        """What has changed, before and now, apart from where the demonstrations are."""
        now, before = self._flat(), old._flat()
        keys = sorted(now.keys() | before.keys())
        return {key: (before.get(key), now.get(key)) for key in keys if now.get(key) != before.get(key)}

    def only_longer(self, old: Cell) -> bool:
        """Whether the run can go on from the old one: nothing that decides what is learned has changed."""
        harmless = {"steps", "updates", "eval_every", "checkpoint_seconds"}
        return self.changes(old).keys() <= harmless and self.total >= old.total

    def _flat(self) -> dict[str, Any]:
        flat = json.loads(json.dumps(self.as_json()))
        settings = flat.pop("settings")
        del flat["title"]
        return flat | {name: value for name, value in settings.items() if name != "demos"}


def cell_of(content: dict[str, Any]) -> Cell:
    """A cell from what `sweep.json` holds. Raises KeyError, TypeError or ValueError if that is no cell."""
    values = {entry.name: content[entry.name] for entry in fields(Cell)}
    if not fits(values, Cell) or values["algorithm"] not in (*ALGORITHMS, RING):
        raise ValueError("no cell")
    return Cell(**values)
