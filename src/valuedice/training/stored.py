"""`config.json`: what a run is, in a form that can be read back and compared."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_type_hints

from valuedice.algorithms import ALGORITHMS, REWARD_LEARNERS, AnyAlgorithm, algorithm_name
from valuedice.demos import Demos, load_demos
from valuedice.demos.episodes import Origin
from valuedice.envs.make import env_name
from valuedice.errors import InputError
from valuedice.training.config import TrainConfig, changeable_fields, stored_fields
from valuedice.training.json_types import fits

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

FORMAT = 6
"""1 had no checkpoints; 2 other settings of SAC; 3 stored settings twice; 4 other settings of ValueDICE and BC; 5
other settings of GAIL, and no `robust`."""
OBJECT = "object"
"""Marks a setting that was given as a Python object, with its description."""


@dataclass(frozen=True)
class StoredConfig:
    """The content of `config.json`."""

    algorithm: str
    hyperparameters: dict[str, Any]
    settings: dict[str, Any]
    """The stored fields of `TrainConfig`."""
    fingerprints: dict[str, str | None]
    """Hashes of the content of the demonstrations and the replay data."""

    @classmethod
    def of(
        cls, algorithm: AnyAlgorithm, config: TrainConfig, demos: Demos | None, extra: Demos | None
    ) -> StoredConfig:
        """From a resolved config and the data that it names."""
        values = {entry.name: getattr(config, entry.name) for entry in stored_fields()}
        if not isinstance(config.env, str) and config.eval_env is config.env:
            # Follows from `env`: a resumed run should not ask for the object twice.
            values["eval_env"] = None
        for name in ("env", "eval_env"):
            if values[name] is not None and not isinstance(values[name], str):
                values[name] = {OBJECT: env_name(values[name])}
        for name, data in (("demos", demos), ("replay_data", extra)):
            if data is not None:
                values[name] = {OBJECT: data.source} if data.origin is None else data.origin.ref
        if demos is not None:
            values |= {"episodes": len(demos), "subsample": demos.every}
            if demos.origin is not None:
                values |= {"episodes_seed": demos.origin.seed, "dones_are": demos.origin.dones_are}
        if extra is not None and extra.origin != Origin(str(values["replay_data"]), values["dones_are"]):
            # Replay data is loaded again as a whole file, read as the demonstrations are.
            values["replay_data"] = {OBJECT: extra.source}
        prints = {"demos": demos, "replay_data": extra}
        return cls(
            algorithm_name(algorithm),
            json.loads(json.dumps(asdict(cast("DataclassInstance", algorithm)))),
            values,
            {name: None if data is None else data.fingerprint() for name, data in prints.items()},
        )

    @property
    def unit(self) -> str:
        """What the run counts."""
        return "updates" if self.settings["offline"] else "steps"

    @property
    def objects(self) -> list[str]:
        """Settings that only Python can give again."""
        return [name for name, value in self.settings.items() if isinstance(value, dict)]

    def resume_call(self, path: Path) -> str:
        """How to continue the run from Python; the command line translates it."""
        shipped = self.algorithm in ALGORITHMS | REWARD_LEARNERS
        again = [f"{name}=…" for name in self.objects]
        return f"load_run({str(path)!r}{'' if shipped else ', algorithm=…'}).resume({', '.join(again)})"

    def as_json(self) -> dict[str, Any]:
        """As `config.json` holds it."""
        return {
            "format": FORMAT,
            "algorithm": self.algorithm,
            "hyperparameters": self.hyperparameters,
            **self.settings,
            "fingerprints": self.fingerprints,
        }

    def rebuilt_algorithm(self) -> AnyAlgorithm | None:
        """The algorithm with its settings; None if it is not one of this library's."""
        kind = (ALGORITHMS | REWARD_LEARNERS).get(self.algorithm)
        return None if kind is None else rebuilt(kind, self.hyperparameters)

    def train_config(self, folder: Path) -> TrainConfig:
        """The settings with which the run would continue. Those given as objects are missing."""
        given: dict[str, Any] = {
            name: None if name in self.objects else value for name, value in self.settings.items()
        }
        return TrainConfig(**given, out=folder, resume=True)


def rebuilt(kind: Any, settings: dict[str, Any]) -> Any:
    """A dataclass from what `config.json` says about it, and the dataclasses that it contains likewise."""
    values: dict[str, Any] = {}
    for entry in fields(kind):
        if entry.name in settings:
            value = settings[entry.name]
            if is_dataclass(entry.default):
                value = rebuilt(type(entry.default), value)
            values[entry.name] = tuple(value) if isinstance(value, list) else value
    return kind(**values)


def load_data(config: TrainConfig) -> tuple[Demos | None, Demos | None]:
    """The demonstrations and the replay data that a config names or holds."""
    demos, extra = as_demos(config.demos, config), as_demos(config.replay_data, config)
    seed = config.seed if config.episodes_seed is None else config.episodes_seed
    if demos is not None and config.episodes not in (None, len(demos)):
        demos = demos.select(config.episodes, seed)
    if demos is not None and config.subsample not in (1, demos.every):
        # The seed that selected the episodes, which may have happened before.
        origin = demos.origin
        seed = seed if origin is None or origin.episodes is None else origin.seed
        demos = demos.subsample(config.subsample, seed)
    return demos, extra


def as_demos(data: object, config: TrainConfig) -> Demos | None:
    """Demonstrations by what the user gave."""
    if isinstance(data, Demos | None):
        return data
    if not isinstance(data, str | os.PathLike):
        raise InputError(f"demonstrations are {data!r}; give a name, a path, or what load_demos returns")
    return load_demos(data, dones_are=config.dones_are)


def read_config(path: Path) -> StoredConfig:
    """The configuration of a run folder."""
    try:
        content = json.loads((path / "config.json").read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path / 'config.json'} cannot be read ({error}); is {path} a run folder?") from None
    found = content.get("format") if isinstance(content, dict) else None
    if not isinstance(found, int):
        raise InputError(f"{path / 'config.json'} has unexpected content; is {path} a run folder?")
    if found != FORMAT:
        needed = "use a newer version of valuedice" if found > FORMAT else "start a new run in another folder"
        raise InputError(f"{path} has format {found}; this version resumes only format {FORMAT}: {needed}")
    try:
        settings = {entry.name: content[entry.name] for entry in stored_fields()}
        stored = StoredConfig(content["algorithm"], content["hyperparameters"], settings, content["fingerprints"])
    except KeyError as error:
        raise InputError(f"{path / 'config.json'} lacks {error}; start a new run, in another folder") from None
    check_types(stored, path)
    return stored


def check_types(stored: StoredConfig, path: Path) -> None:
    """Refuses a damaged `config.json` before a value of a wrong type fails somewhere inside."""
    # What was given as an object is stored as its description.
    hints = get_type_hints(TrainConfig) | dict.fromkeys(
        ("demos", "env", "eval_env", "replay_data"), str | dict[str, str] | None
    )
    wrong = [name for name, value in stored.settings.items() if not fits(value, hints[name])]
    kinds: dict[str, Any] = ALGORITHMS | REWARD_LEARNERS
    if not fits(stored.algorithm, str):
        wrong.append("algorithm")
    elif not fits(stored.hyperparameters, kinds.get(stored.algorithm, dict[str, Any])):
        wrong.append("hyperparameters")
    if wrong or not fits(stored.fingerprints, dict[str, str | None]):
        about = f" ({', '.join(wrong)})" if wrong else ""
        raise InputError(f"{path}/config.json has unexpected content{about}; is {path} a run folder?")


def check_unchanged(path: Path, new: StoredConfig) -> None:
    """A run is resumed with the settings that it began with, apart from those that may change."""
    old = read_config(path)
    may_change = changeable_fields()
    pairs = [("algorithm", old.algorithm, new.algorithm)]
    pairs += [(name, old.settings[name], value) for name, value in new.settings.items() if name not in may_change]
    pairs += compared(old.hyperparameters, new.hyperparameters)
    changed = [f"`{name}` was {shown(before)}, now {shown(now)}" for name, before, now in pairs if before != now]
    prints = [name for name, value in new.fingerprints.items() if value != old.fingerprints.get(name)]
    changed += [f"`{name}` holds other episodes" for name in prints]
    if changed:
        raise InputError(
            f"{path} was begun with other settings: {'; '.join(changed)}; resume without these changes, or start a "
            "new run"
        )


def shown(value: Any) -> Any:
    """A stored value in a message."""
    return value[OBJECT] if isinstance(value, dict) and OBJECT in value else value


def compared(old: dict[str, Any], new: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """Settings side by side, those of contained dataclasses too."""
    pairs: list[tuple[str, Any, Any]] = []
    for name in old.keys() | new.keys():
        before: Any = old.get(name)
        now: Any = new.get(name)
        both = isinstance(before, dict) and isinstance(now, dict)
        pairs += compared(before, now) if both else [(name, before, now)]
    return sorted(pairs, key=lambda pair: pair[0])
