"""Every setting of a run, stated once: arguments of `train`, flags of the commands, keys of `config.json`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, Field, dataclass, field, fields, replace
from math import inf, isfinite
from pathlib import Path
from typing import Any, Literal, NamedTuple

from valuedice.algorithms import AnyAlgorithm, algorithm_name
from valuedice.demos import Demos, DonesAre
from valuedice.envs.make import EnvRef, check_env_ref
from valuedice.errors import InputError
from valuedice.system.machine import threads
from valuedice.training.loggers import Logger, Progress
from valuedice.types import Pace

DEFAULTS = {"steps": 10_000, "updates": 40_000}
"""Length of a run: steps online, updates offline."""
WHOLE = (
    "episodes",
    "episodes_seed",
    "subsample",
    "steps",
    "updates",
    "seed",
    "eval_every",
    "eval_episodes",
    "replay_capacity",
    "threads",
)
"""Settings that are integers."""


BLOCK = 200
"""Batches that are drawn at once offline; one compiled call makes at most so many updates."""


DemosRef = Demos | str | os.PathLike[str]
"""Demonstrations, or the name or path that load_demos takes."""


Keep = Literal["closest", "last"]
"""Which of the evaluated policies a run ends with."""


def kept_by(preset: str) -> Keep | None:
    """What a run of a preset ends with; None leaves it to the config. The paper reports the last policy."""
    return "last" if preset == "paper" else None


class Round(NamedTuple):
    """One round of the loop."""

    done: int
    """Steps (offline: updates) after this round."""
    updates: int
    """Updates of this round."""
    evaluates: bool
    """Whether an evaluation follows."""


def setting(default: Any, *, stored: bool = True, changes: bool = False) -> Any:
    """A field of the config. `stored` settings are in `config.json`; of these, a resumed run may change those that
    do not decide what is learned (`changes`)."""
    return field(default=default, metadata={"stored": stored, "changes": changes})


@dataclass(frozen=True)
class TrainConfig:
    """What a run is, apart from the algorithm."""

    # Demonstrations may move to another file: their fingerprint tells whether they are the same.
    demos: DemosRef | None = setting(None, changes=True)
    """Demonstrations: the name of shipped ones, or the path of an .npz file."""
    env: EnvRef | None = setting(None)
    """Gymnasium id of the task; module:Id-v0 imports the module first."""
    _: KW_ONLY
    episodes: int | None = setting(None)
    """Use this many of the demonstrated episodes, chosen by the seed; all by default."""
    episodes_seed: int | None = setting(None, changes=True)
    """Chooses the episodes; by default the seed of the run."""
    subsample: int = setting(1)
    """Use every Nth transition of each episode, from an offset chosen by the episodes' seed; all by default."""
    dones_are: DonesAre | None = setting(None, changes=True)
    """What `dones` means in the authors' file format, which does not say."""
    steps: int | None = setting(None, changes=True)
    """Environment steps, for training online."""
    offline: bool = setting(False)
    """Learn from the demonstrations alone; an environment is used for evaluation only."""
    updates: int | None = setting(None, changes=True)
    """Updates, for training offline."""
    replay_data: DemosRef | None = setting(None, changes=True)
    """Other, non-expert data for the replay buffer, in any format of the demonstrations."""
    seed: int = setting(0)
    """Random seed; also chooses the episodes, unless there is a seed for these."""
    eval_env: EnvRef | None = setting(None)
    """Environment for evaluation; by default that of training."""
    eval_every: int = setting(1_000, changes=True)
    """Steps (offline: updates) between evaluations."""
    eval_episodes: int = setting(10)
    """Episodes of an evaluation, with the mean action."""
    keep: Keep | None = setting(None)
    """End with the evaluated policy whose rollouts are closest to the demonstrations, or with the last one. Closest
    by default, if there is an environment for evaluation. No reward chooses."""
    init_policy: Path | str | None = setting(None)
    """Begin with the policy of this file or run folder, in place of a warm start."""
    target_return: float | None = setting(None, changes=True)
    """Stop when the mean return of an evaluation reaches this; for algorithms that learn from rewards."""
    robust: bool = setting(False, changes=True)
    """Stop at the target return only if noise of 0.1 on the actions costs at most a tenth of it."""
    replay_capacity: int = setting(1_000_000)
    """Rows of the replay buffer."""
    threads: int | None = setting(None)
    """Cores to use; all by default. To run several seeds side by side, give each 1."""
    checkpoint_seconds: float = setting(60.0, changes=True)
    """Seconds between checkpoints."""
    out: Path | str | None = setting(None, stored=False)
    """Run folder. The command line makes a new one under runs/ by default."""
    resume: bool = setting(False, stored=False)
    """Continue the run in the run folder exactly as if it had never stopped."""
    quiet: bool = setting(False, stored=False)
    """Show no progress."""
    on_evaluation: Callable[[Progress], bool | None] | None = setting(None, stored=False)
    """Called after each evaluation; the run ends if it returns True."""
    loggers: Sequence[Logger] = setting((), stored=False)
    """Further loggers, beside `metrics.csv` and TensorBoard."""

    @property
    def folder(self) -> Path | None:
        """Where the run is kept; None keeps it in memory only."""
        return None if self.out is None else Path(self.out)

    @property
    def total(self) -> int:
        """Steps (offline: updates) of the whole run; known once the config is resolved."""
        total = self.updates if self.offline else self.steps
        assert total is not None, "resolve the config first"
        return total

    @property
    def unit(self) -> Literal["steps", "updates"]:
        """What the run counts."""
        return "updates" if self.offline else "steps"

    @property
    def training_env(self) -> EnvRef | None:
        """The environment that the algorithm acts in; None offline."""
        return None if self.offline else self.env

    def rounds(self, done: int, pace: Pace | None, *, opens: bool = False) -> Iterator[Round]:
        """What remains of the run. A round is one step of all environments; offline, one compiled call, which ends
        where a block of batches or an evaluation ends. A run that `opens` has a round 0: its first policy is
        evaluated before anything else."""
        if opens:
            yield Round(0, 0, evaluates=True)
        online = None if self.offline else pace
        # With parallel environments, evaluates at the first step count past each multiple of `eval_every`.
        stride = 1 if online is None else online.environments
        while done < self.total:
            before, done = done, done + stride
            if online is None:
                done = min(self.total, *((before // size + 1) * size for size in (BLOCK, self.eval_every)))
            updates = done - before if online is None else online.updates_at(done)
            yield Round(done, updates, evaluates=done % self.eval_every < stride or done == self.total)

    def resolved(self, algorithm: AnyAlgorithm) -> TrainConfig:
        """The same run with every default filled in, after all rules about what fits together."""
        name, pace, data = algorithm_name(algorithm), algorithm.pace, algorithm.data
        if self.env is not None:
            check_env_ref(self.env)
        if self.eval_env is not None:
            check_env_ref(self.eval_env)
        self._check_limits()
        if data.demos and self.demos is None:
            raise InputError("no demonstrations given; name a file or shipped ones with `demos`")
        if not data.demos and (self.demos is not None or self.replay_data is not None):
            raise InputError(f"{name} learns from rewards, not from demonstrations; omit `demos` and `replay_data`")
        if data.demos and self.target_return is not None:
            raise InputError(f"{name} learns without rewards; omit `target_return`")
        if self.robust and self.target_return is None:
            raise InputError("`robust` needs a `target_return` to stop at; give one, or omit `robust`")
        offline = self.offline or self.env is None or pace is None
        online_only = data.replay == "required" or (pace is not None and pace.rollout is not None)
        if offline and online_only:
            instead = ", or use value-dice or bc" if data.demos else ""
            raise InputError(
                f"{name} cannot learn offline: it needs an environment to act in; name one with `env`{instead}"
            )
        if pace is None and self.steps is not None:
            raise InputError(f"{name} takes no steps in an environment; give `updates` instead of `steps`")
        if offline and self.steps is not None:
            raise InputError("`steps` are for training in an environment; give `updates` for offline training")
        if not offline and self.updates is not None:
            instead = "" if online_only else ", or train with `offline`"
            raise InputError(f"`updates` are for offline training; give `steps`{instead}")
        if self.replay_data is not None and data.replay == "unused":
            raise InputError(
                f"{name} does not use replay data with these settings; omit `replay_data`, or use value-dice with "
                "a `replay_regularization` above 0"
            )
        if not data.demos and self.keep == "closest":
            raise InputError(f"{name} has no demonstrations to be close to; omit `keep`")
        if self.keep == "closest" and self.eval_env is None and self.env is None:
            raise InputError(
                "no policy is evaluated without an environment; name an `eval_env`, or `keep` the last"
            )
        config = replace(self, offline=offline, eval_env=self.env if self.eval_env is None else self.eval_env)
        config = replace(config, **{name: self._whole(name) for name in WHOLE})
        closest = data.demos and config.eval_env is not None
        config = replace(config, keep=config.keep or ("closest" if closest else "last"))
        if config.init_policy is not None:
            config = replace(config, init_policy=os.path.abspath(config.init_policy))
        config = replace(config, threads=threads() if config.threads is None else config.threads)
        if offline or pace is None:
            return replace(config, updates=DEFAULTS["updates"] if config.updates is None else config.updates)
        steps = DEFAULTS["steps"] if config.steps is None else config.steps
        # All environments step together, so the last step may exceed what was asked for.
        steps = -(-steps // pace.environments) * pace.environments
        if steps < pace.training_starts:
            earlier = "training_starts" if pace.rollout is None else "rollout"
            raise InputError(
                f"{steps} steps end before the first update, at step {pace.training_starts}; take more `steps`, or "
                f"lower `{earlier}`"
            )
        return replace(config, steps=steps)

    def _whole(self, name: str) -> int | None:
        """An integer setting, which Python may give as 1e4 or as a number of numpy."""
        value = getattr(self, name)
        if value is None or int(value) == value:
            return None if value is None else int(value)
        raise InputError(f"`{name}` is {value}; it must be a whole number")

    def _check_limits(self) -> None:
        least = {"steps": 1, "updates": 1, "eval_every": 1, "eval_episodes": 1, "seed": 0, "episodes_seed": 0}
        least |= {"subsample": 1, "replay_capacity": 1, "checkpoint_seconds": 0, "threads": 1}
        least |= {"target_return": -inf}
        for name, bound in least.items():
            value = getattr(self, name)
            if value is not None and not (bound <= value < inf and isfinite(value)):
                limit = "finite" if bound == -inf else f"finite and at least {bound}"
                raise InputError(f"`{name}` is {value}; it must be {limit}")
        if self.seed >= 2**32:
            raise InputError(f"`seed` is {self.seed}; it must be below 2**32")
        if self.threads not in (None, threads()):
            raise InputError(
                f"`threads` is {self.threads}, but this process computes with {threads()}; set NPROC and "
                f"OPENBLAS_NUM_THREADS to {self.threads} before Python starts"
            )
        if self.resume and self.out is None:
            raise InputError("nothing to resume; name the run folder with `out`")


def stored_fields() -> list[Field[Any]]:
    """Settings that `config.json` holds."""
    return [entry for entry in fields(TrainConfig) if entry.metadata["stored"]]


def changeable_fields() -> set[str]:
    """Settings that a resumed run may change."""
    return {entry.name for entry in fields(TrainConfig) if entry.metadata["changes"]}
