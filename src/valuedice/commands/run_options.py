"""What the two commands that train share: flags made of `TrainConfig` and an algorithm, and resuming by flags."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, make_dataclass
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import tyro

from valuedice.algorithms import ALGORITHMS, REWARD_LEARNERS, AnyAlgorithm, algorithm_name
from valuedice.commands import flag_of, parse, value_of
from valuedice.envs.make import file_name
from valuedice.errors import InputError
from valuedice.system.machine import keep_compiled
from valuedice.training.config import DEFAULTS, TrainConfig
from valuedice.training.run import Run, run_algorithm
from valuedice.training.stored import StoredConfig, read_config

# What Python takes as an object, the command line takes by name.
NAMED: dict[str, Any] = {
    **dict.fromkeys(("demos", "env", "eval_env", "replay_data", "init_policy"), str | None),
    **dict.fromkeys(("out", "resume"), Path | None),
}
NEVER_FLAGS = {"on_evaluation", "loggers"}


@dataclass(frozen=True)
class RunCommand:
    """A command that trains: its flags are the fields of `TrainConfig`, apart from the hidden ones."""

    name: str
    doc: str
    hidden: Collection[str]
    """Settings that are no flags of this command."""
    renamed: Mapping[str, str]
    """Settings whose flag has another name."""
    defaults: Mapping[str, Any]
    """Where this command's default differs."""
    further: tuple[tuple[str, Any, Any], ...] = ()
    """Flags of the command itself: name, type, default."""

    def options(self, kind: type[AnyAlgorithm]) -> Any:
        """The dataclass of all flags, with the algorithm's settings beside the others."""
        hints = get_type_hints(TrainConfig)
        entries: list[tuple[str, Any, Any]] = []
        for entry in fields(TrainConfig):
            form = NAMED.get(entry.name, hints[entry.name])
            default = self.defaults.get(entry.name, None if entry.name == "resume" else entry.default)
            if entry.name in self.hidden or entry.name in NEVER_FLAGS:
                form = Annotated[form, tyro.conf.Suppress]
            else:
                form = Annotated[form, self.shown(entry.name, form, default)]
            entries.append((entry.name, form, field(default=default)))
        entries += [(name, form, field(default=default)) for name, form, default in self.further]
        entries.append(("algorithm", Annotated[kind, tyro.conf.arg(name="")], field(default_factory=kind)))
        made: Any = make_dataclass(
            "Options", entries, bases=(TrainConfig,), frozen=True, namespace={"__doc__": self.doc}
        )
        return made

    def shown(self, name: str, form: Any, default: Any) -> Any:
        """How the help shows a flag: without tyro's None, which a user never types."""
        kinds = [kind for kind in get_args(form) if kind is not NoneType]
        optional = len(kinds) == 1 and form == kinds[0] | None
        usual = DEFAULTS.get(name) if default is None else default
        return tyro.conf.arg(
            name=self.renamed.get(name),
            metavar=shown_kind(kinds[0]) if optional else None,
            help_behavior_hint="" if usual is None else f"(default: {usual})",
        )

    def stored(self, args: list[str], known: Collection[str]) -> StoredConfig | None:
        """The configuration of the run that `--resume` names, if this command can continue it."""
        folder = value_of("--resume", args)
        if folder is None:
            return None
        if not folder:
            raise InputError("--resume needs a run folder")
        stored = read_config(Path(folder))
        from_python = f"from Python: {stored.resume_call(Path(folder))}"
        if stored.algorithm not in known:
            other = {"train": "expert", "expert": "train"}[self.name]
            ours = stored.algorithm in ALGORITHMS | REWARD_LEARNERS
            advice = f"with valuedice {other}" if ours else from_python
            raise InputError(f"{folder} is a run of {stored.algorithm}; resume it {advice}")
        # Data may come from elsewhere now, an environment may not.
        if any("env" in name or value_of(flag_of(name), args) is None for name in stored.objects):
            raise InputError(f"{folder} was begun with Python objects; resume it {from_python}")
        return stored

    def parse(self, args: list[str], algorithm: AnyAlgorithm, stored: StoredConfig | None) -> Any:
        """The options. Flags given now override the stored ones; overrides that would change the result are refused
        later, by the run folder."""
        options = self.options(type(algorithm))
        default = options(algorithm=algorithm)
        if stored is not None:
            folder = Path(value_of("--resume", args) or "")
            settings = {name: None if name in stored.objects else value for name, value in stored.settings.items()}
            default = options(**settings, algorithm=algorithm, resume=folder, out=folder)
        title = f"{self.name} {algorithm_name(algorithm)}" if self.name == "train" else self.name
        found = parse(options, title, args, default, self.renamed)
        if found.resume is not None and found.out.resolve() != found.resume.resolve():
            raise InputError(f"`out` is {found.out}, but a resumed run stays in {found.resume}; omit `out`")
        return found

    def run(self, options: Any, **changes: Any) -> Run:
        """Trains by the options."""
        settings: dict[str, Any] = {entry.name: getattr(options, entry.name) for entry in fields(TrainConfig)}
        settings |= changes | {"resume": options.resume is not None}
        keep_compiled()
        return run_algorithm(options.algorithm, TrainConfig(**settings))


def shown_kind(kind: Any) -> str:
    """A type as the help shows it."""
    if get_origin(kind) is Literal:
        return f"{{{','.join(get_args(kind))}}}"
    return "DIR" if kind is Path else kind.__name__.upper()


def default_folder(task: str, seed: int) -> Path:
    """A folder under runs/ that does not exist yet."""
    name = f"{file_name(task)}-seed{seed}"
    number = 1
    while (folder := Path("runs") / (name if number == 1 else f"{name}-{number}")).exists():
        number += 1
    return folder


def pasted(run: Run) -> str:
    """The run folder as a shell takes it."""
    return shlex.quote(str(run.out))


def where_to_look(run: Run) -> list[str]:
    """Lines about the files of a finished run."""
    return [
        f"policy: {run.out}/policy.safetensors",
        f"curves: {run.out}/metrics.csv, or tensorboard --logdir {pasted(run)} (pip install tensorboard)",
    ]
