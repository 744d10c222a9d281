"""Films of policies: frames of an episode, of one policy or of several side by side, without a screen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from valuedice.envs.episodes import play
from valuedice.envs.fit import check_fit
from valuedice.envs.make import EnvRef, env_name, limit_time, make_env, task_spec
from valuedice.errors import InputError
from valuedice.policy import Policy
from valuedice.system.files import writing_to

HEIGHT = 240
GAP = 4
"""Pixels between pictures that stand side by side."""


def film(policy: Policy, env: EnvRef, seed: int, every: int = 1) -> Iterator[np.ndarray]:
    """Frames of one episode with the mean action, one in `every` steps."""
    name = env_name(env)
    with closing(make_env(env, render=True)) as made:
        stage = limit_time(made)
        check_fit(policy, task_spec(stage, name), name)
        for number, _ in enumerate(play(lambda obs, _: policy(np.asarray(obs)), [stage], [seed])):
            if number % every == 0:
                yield np.asarray(stage.render())


def beside(films: list[Iterator[np.ndarray]], height: int = HEIGHT) -> Iterator[np.ndarray]:
    """Films side by side, at equal height; one that has ended keeps its last frame."""
    from PIL import Image

    last: list[np.ndarray] = []
    for frames in zip_longest(*films):
        last = [frame if frame is not None else old for frame, old in zip_longest(frames, last)]
        pictures: list[np.ndarray] = []
        for frame in last:
            width = round(frame.shape[1] * height / frame.shape[0])
            pictures += [np.asarray(Image.fromarray(frame).resize((width, height)))]
            pictures += [np.full((height, GAP, 3), 255, np.uint8)]
        yield np.concatenate(pictures[:-1], axis=1)


def write_film(frames: Iterator[np.ndarray], path: Path, rate: float, longest: int) -> int:
    """Writes at most `longest` frames to a .gif or .mp4, and returns how many."""
    import imageio.v3 as iio

    if path.suffix not in (".gif", ".mp4"):
        raise InputError(f"{path} is neither .gif nor .mp4; name one of them")
    pictures = list(islice(frames, longest))
    options: dict[str, Any] = {"duration": 1000 / rate, "loop": 0}
    if path.suffix == ".mp4":
        # The codec takes even sizes only.
        pictures = [frame[: len(frame) // 2 * 2, : frame.shape[1] // 2 * 2] for frame in pictures]
        options = {"fps": rate, "plugin": "FFMPEG", "macro_block_size": 1}
    try:
        with writing_to(path):
            iio.imwrite(path, pictures, **options)
    except ImportError:
        raise InputError("an .mp4 needs a package: pip install imageio-ffmpeg; or write a .gif") from None
    return len(pictures)
