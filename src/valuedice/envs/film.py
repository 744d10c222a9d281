"""Films of policies: frames of an episode, of one policy or of several side by side, without a screen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from valuedice.demos.episodes import Demos, Episode
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


def recording_film(episode: Episode, env: EnvRef, every: int = 1) -> Iterator[np.ndarray]:
    """Frames of a recorded episode, for MuJoCo's tasks whose observations hold the state of the body."""
    name = env_name(env)
    with closing(make_env(env, render=True)) as made:
        task: Any = made.unwrapped
        parts: dict[str, int] = getattr(task, "observation_structure", {})
        if not {"qpos", "qvel"} <= parts.keys():
            raise InputError(f"the observations of {name} do not show how to draw a recorded episode")
        check_fit(Demos.from_episodes([episode], name), task_spec(made, name), name)
        made.reset(seed=0)
        # The first coordinates, where the body is in the world, are no part of an observation, but the speed is.
        hidden, seen, speeds = parts.get("skipped_qpos", 0), parts["qpos"], parts["qvel"]
        place = np.zeros(hidden)
        for number, obs in enumerate(episode.observations.astype(np.float64)):
            velocity = obs[seen : seen + speeds]
            if number % every == 0:
                task.set_state(np.concatenate([place, obs[:seen]]), velocity)
                yield np.asarray(made.render())
            place = place + task.dt * velocity[:hidden]


def real_time(env: EnvRef, rate: float = 12.0) -> tuple[int, float]:
    """Steps between frames, and frames per second, for a film of about this rate at the speed of the task."""
    with closing(make_env(env)) as made:
        steps = float(made.metadata.get("render_fps") or rate)
    every = max(1, round(steps / rate))
    return every, steps / every


def beside(
    films: Sequence[Iterator[np.ndarray]], height: int = HEIGHT, titles: Sequence[str] = ()
) -> Iterator[np.ndarray]:
    """Films side by side, at equal height; one that has ended keeps its last frame."""
    last: list[np.ndarray] = []
    for frames in zip_longest(*films):
        last = [frame if frame is not None else old for frame, old in zip_longest(frames, last)]
        pictures: list[np.ndarray] = []
        for number, frame in enumerate(last):
            pictures += [panel(frame, height, titles[number] if titles else "")]
            pictures += [np.full((height, GAP, 3), 255, np.uint8)]
        yield np.concatenate(pictures[:-1], axis=1)


def panel(frame: np.ndarray, height: int, title: str) -> np.ndarray:
    """A frame of this height, with a title in its corner."""
    from PIL import Image, ImageDraw, ImageFont

    picture = Image.fromarray(frame).resize((round(frame.shape[1] * height / frame.shape[0]), height))
    if title:
        font = ImageFont.load_default(size=15)
        ImageDraw.Draw(picture).text((8, 6), title, "white", font, stroke_width=2, stroke_fill="black")
    return np.asarray(picture)


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
