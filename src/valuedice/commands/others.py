"""`valuedice evaluate` and `valuedice ring`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from valuedice.commands import parse, say
from valuedice.errors import InputError


@dataclass(frozen=True)
class EvaluateOptions:
    """Returns of a policy over whole episodes, with its mean action."""

    policy: Positional[Path]
    """A policy.safetensors file, or a run folder."""
    env: str | None = None
    """Gymnasium id; of a run folder, its own by default."""
    episodes: int = 10
    """How many."""
    seed: int = 0
    """Decides the resets."""
    stochastic: bool = False
    """Sample actions instead of taking the mean."""


@dataclass(frozen=True)
class RingOptions:
    """The paper's Ring MDP: sparse and stochastic expert, with exact occupancies and divergence."""

    out: Path = Path("runs/ring")
    """Folder for ring.json and ring.png."""


def evaluate_command(args: list[str]) -> int:
    """`valuedice evaluate RUN_OR_POLICY`."""
    options = parse(EvaluateOptions, "evaluate", args)
    from valuedice.policy import load_policy

    policy = load_policy(options.policy)
    env = options.env or run_env(options.policy)
    from valuedice.evaluate import evaluate

    result = evaluate(policy, env, options.episodes, options.seed, deterministic=not options.stochastic)
    for number, (total, length) in enumerate(zip(result.returns, result.lengths, strict=True)):
        say(f"episode {number}: return {total:.1f}, {length} steps")
    say(f"return: {result.mean:.1f} ± {result.std:.1f} over {options.episodes} episodes of {env}")
    return 0


def run_env(path: Path) -> str:
    """The environment that a run folder was evaluated in."""
    from valuedice.runs import read_config

    env = read_config(path).get("eval_env") if (path / "config.json").is_file() else None
    if env is None:
        raise InputError("no environment given; name one with --env ID")
    return env


def ring_command(args: list[str]) -> int:
    """`valuedice ring`."""

    options = parse(RingOptions, "ring", args)
    from valuedice.ring import SPARSE_ACTIONS, run_ring

    result = run_ring(options.out)
    least = min(row[action] for row, action in zip(result["sparse"]["policy"], SPARSE_ACTIONS, strict=True))
    say(f"sparse expert: least probability of the paper's action over all 8 states: {least:.3f}")
    updates, kl = result["stochastic"]["kl"][-1]
    say(f"stochastic expert: KL {kl:.2g} after {updates} updates")
    say(f"figure: {options.out / 'ring.png'}, numbers: {options.out / 'ring.json'}")
    return 0
