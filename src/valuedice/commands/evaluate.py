"""`valuedice evaluate`."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from tyro.conf import Positional

from valuedice.commands import parse, say
from valuedice.errors import InputError


@dataclass(frozen=True)
class EvaluateOptions:
    """Show the returns of a policy over whole episodes."""

    policy: Annotated[Positional[Path], tyro.conf.arg(metavar="RUN_OR_POLICY")]
    """A policy.safetensors file, or a run folder."""
    env: str | None = None
    """Gymnasium id; of a run folder, its own by default."""
    episodes: int = 10
    """Number of episodes."""
    seed: int = 0
    """Seed of the environment resets."""
    stochastic: bool = False
    """Sample actions instead of taking the mean."""
    noise: float = 0.0
    """Noise on the actions: its standard deviation on actions scaled to [-1, 1], or the fraction of random ones if
    actions are discrete."""


def evaluate_command(args: list[str]) -> int:
    """`valuedice evaluate RUN_OR_POLICY`."""
    options = parse(EvaluateOptions, "evaluate", args)
    from valuedice.policy import load_policy

    policy = load_policy(options.policy)
    env = options.env or run_env(options.policy)
    from valuedice.envs.episodes import evaluate

    result = evaluate(policy, env, options.episodes, options.seed, not options.stochastic, options.noise)
    for number, (total, length) in enumerate(zip(result.returns, result.lengths, strict=True)):
        say(f"episode {number}: return {total:.1f}, {length} steps")
    say(f"return: {result.mean:.1f} ± {result.std:.1f} over {options.episodes} episodes of {env}")
    return 0


def run_env(path: Path) -> str:
    """The environment that a run folder was evaluated in."""
    env = None
    # Of any format: older runs can be evaluated too.
    with suppress(OSError, ValueError, AttributeError, RecursionError):
        env = json.loads((path / "config.json").read_text()).get("eval_env")
    if not isinstance(env, str):
        raise InputError("no environment given; name one with `env`")
    return env
