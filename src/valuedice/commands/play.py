"""`valuedice play`."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from pathlib import Path

from tyro.conf import Positional

from valuedice.commands import parse, say
from valuedice.commands.evaluate import run_env
from valuedice.errors import InputError


@dataclass(frozen=True)
class PlayOptions:
    """Film an episode of a policy, or of several side by side, with the mean action."""

    policies: Positional[tuple[Path, ...]]
    """policy.safetensors files, or run folders."""
    out: Path
    """The .mp4 or .gif to write."""
    env: str | None = None
    """Gymnasium id; of a run folder, its own by default."""
    seed: int = 0
    """Seed of the environment reset, the same for all."""
    every: int = 2
    """Steps between frames."""
    frames: int = 500
    """Largest number of frames."""
    rate: float = 25.0
    """Frames per second."""


def play_command(args: list[str]) -> int:
    """`valuedice play RUN_OR_POLICY ... --out FILE`."""
    options = parse(PlayOptions, "play", args)
    if not options.policies:
        raise InputError("no policy given; name a policy.safetensors file or a run folder")
    for name, least in (("every", 1), ("frames", 1), ("rate", 0.1), ("seed", 0)):
        if not least <= getattr(options, name) < inf:
            raise InputError(f"`{name}` is {getattr(options, name)}; it must be finite and at least {least}")
    from valuedice.envs.film import beside, film, write_film
    from valuedice.policy import load_policy

    films = [
        film(load_policy(path), options.env or run_env(path), options.seed, options.every)
        for path in options.policies
    ]
    count = write_film(beside(films), options.out, options.rate, options.frames)
    say(f"{options.out}: {count} frames, {count / options.rate:.1f} s")
    return 0
