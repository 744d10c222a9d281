"""`valuedice train`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from valuedice.algorithms import ALGORITHMS, BC, DAC, GAIL, DualDICE, algorithm_name, preset_of
from valuedice.commands import say, value_of
from valuedice.commands.run_options import RunCommand, default_folder, pasted, where_to_look
from valuedice.errors import InputError
from valuedice.training.config import kept_by
from valuedice.training.run import Run
from valuedice.training.stored import load_data

Preset = Annotated[
    Literal["default", "paper"],
    tyro.conf.arg(help="Settings to begin with: the algorithm's own, or those of the paper. Flags override them."),
]
Film = Annotated[
    bool,
    tyro.conf.arg(
        help="Film the demonstration beside the policy, into policy.gif, if the observations of the task show the "
        "whole body, as in most tasks of MuJoCo. The run without options does so, unless it is quiet."
    ),
]
FILM_FRAMES = 80
TRAIN = RunCommand(
    name="train",
    doc="Learn a policy from demonstrations. Algorithms: value-dice (default), bc, dac, dual-dice, gail. Without "
    "--env and --demos, imitates a shipped demonstration.",
    hidden={"target_return", "robust"},
    renamed={},
    defaults={},
    further=(("preset", Preset, "default"), ("film", Film, False)),
)
FIRST_RUN: dict[str, Any] = {"env": "HalfCheetah-v5", "demos": "halfcheetah", "episodes": 1, "steps": 10_000}
"""What `valuedice train` does without options; it films the result, too."""
FIRST_RUNS: dict[type, dict[str, Any]] = {
    BC: {"env": "CartPole-v1", "demos": "cartpole", "updates": 3_000},
    DAC: {"env": "Pendulum-v1", "demos": "pendulum", "episodes": 5, "steps": 5_000},
    DualDICE: {"env": "MountainCarContinuous-v0", "demos": "mountaincar", "episodes": 3, "steps": 4_000},
    GAIL: {"env": "CartPole-v1", "demos": "cartpole", "steps": 50_000},
}
"""What the other algorithms do: SAC takes continuous actions only, and on-policy learning takes more steps."""


def train_command(args: list[str]) -> int:
    """`valuedice train [ALGORITHM] ...`."""
    name = None
    if args and not args[0].startswith("-"):
        name, *args = args
        if name not in ALGORITHMS:
            raise InputError(f"no algorithm {name!r}; there are: {', '.join(ALGORITHMS)}")
    stored, preset = TRAIN.stored(args, ALGORITHMS), value_of("--preset", args)
    if stored is not None and name not in (None, stored.algorithm):
        raise InputError(f"the run is one of {stored.algorithm}, not of {name}; omit the algorithm to resume it")
    algorithm = None if stored is None or preset else stored.rebuilt_algorithm()
    if algorithm is None:
        # With a preset, flags count from there: on resume, a repeated command line gives the stored settings again.
        algorithm = preset_of((name or "value-dice") if stored is None else stored.algorithm, preset)
    options = TRAIN.parse(args, algorithm, stored)
    return train_with(options, films=not options.quiet and "--no-film" not in args)


def train_with(options: Any, *, films: bool = False) -> int:
    """Trains, and prints the result. `films` allows the run without options to film it."""
    acts = options.algorithm.pace is not None
    if options.env is None and options.demos is None and not options.offline:
        first = FIRST_RUNS.get(type(options.algorithm), FIRST_RUN)
        options = replace(options, **{k: v for k, v in first.items() if getattr(options, k) is None})
        options = replace(options, film=options.film or (first is FIRST_RUN and films))
    if options.env is None and not options.offline and acts and options.demos is not None:
        # An algorithm that cannot learn offline is refused here.
        replace(options, steps=None, updates=None).resolved(options.algorithm)
        # From Python this means offline; here it is more likely to be forgotten.
        raise InputError("no environment given; name one with `env`, or train without one with `offline`")
    place = options.eval_env or options.env
    keep = options.keep or kept_by(options.preset)
    task = f"{place or Path(str(options.demos)).stem}-{algorithm_name(options.algorithm)}"
    run = TRAIN.run(options, out=options.out or default_folder(task, options.seed), keep=keep)
    filmed = film_beside_expert(run) if options.film else []
    if not options.quiet:
        report(run, place, filmed)
    return 0


def film_beside_expert(run: Run) -> list[str]:
    """Films the demonstration and the policy, and says where. A machine that cannot draw still has its policy."""
    from valuedice.envs.film import beside, film, real_time, recording_film, write_film

    # Whole episodes, also if the policy learned from some of their rows.
    env, (demos, _) = run.config.eval_env, load_data(replace(run.config, subsample=1))
    assert run.out is not None
    try:
        if env is None or demos is None:
            raise InputError("there is no environment to draw in")
        every, rate = real_time(env)
        films = [recording_film(demos.episodes[0], env, every), film(run.policy, env, run.config.seed, every)]
        pictures = beside(films, titles=("expert (recorded)", "imitator"))
        write_film(pictures, run.out / "policy.gif", rate, FILM_FRAMES)
    except InputError as error:
        return [f"film:   none ({error})"]
    return [f"film:   {run.out}/policy.gif, the recorded expert beside the policy"]


def report(run: Run, env: str | None, filmed: list[str]) -> None:
    """The return next to the expert's, and where to look next."""
    last, final = run.metrics[-1], run.final or {}
    lines: list[str] = []
    if final.get("return_mean") is not None:
        expert = "unknown" if last["expert_return"] is None else f"{last['expert_return']:.1f}"
        share = "" if final["normalized_return"] is None else f" (normalised: {final['normalized_return']:.2f})"
        lines.append(
            f"return: {final['return_mean']:.1f} ± {final['return_std']:.1f} on fresh episodes, expert: "
            f"{expert}{share}"
        )
    if final.get("distance") is not None:
        floor = "" if final["distance_floor"] is None else f" (noise floor about {final['distance_floor']:.2g})"
        lines.append(f"distance from the demonstrations: {final['distance']:.3g}{floor}")
    if final.get("kept") == "closest":
        when = f"update {final['updates']:,}" if run.config.offline else f"step {final['step']:,}"
        lines.append(f"kept: the policy of {when}, the closest of {len(run.metrics)} evaluated ones")
    if last["kl_estimate"] is not None:
        lines.append(f"divergence from the expert at the end (KL estimate): {last['kl_estimate']:.3g}")
    lines += where_to_look(run) + filmed
    if env is not None:
        lines.append(f"next:   valuedice evaluate {pasted(run)} --env {env} --episodes 10")
    say("\n".join(lines))
