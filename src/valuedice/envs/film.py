"""Policies on film: frames of an episode, of one policy or of several side by side, without a screen."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from valuedice.envs import limit_time, quiet_compiler, task_spec
from valuedice.errors import InputError
from valuedice.evaluate import check_same_task
from valuedice.policy import Policy

HEIGHT = 240
GAP = 4
"""Pixels between pictures that stand side by side."""


def choose_renderer() -> None:
    """Without a screen MuJoCo draws by EGL, unless it was told otherwise; it must know before it is loaded."""
    if sys.platform == "linux" and not os.environ.get("DISPLAY"):
        os.environ.setdefault("MUJOCO_GL", "egl")


def open_stage(env: str) -> gym.Env[Any, Any]:
    """An environment that can be filmed."""
    choose_renderer()
    try:
        with quiet_compiler():
            stage = limit_time(gym.make(env, render_mode="rgb_array", disable_env_checker=True))
            go_along(stage)
            stage.reset(seed=0)
            stage.render()
    except gym.error.NameNotFound as error:
        raise InputError(f"no environment {env!r} ({error}); give a Gymnasium id such as Hopper-v5") from None
    except gym.error.DependencyNotInstalled as error:
        raise InputError(f"{env} needs a package to be drawn: {error}") from None
    except Exception as error:  # drivers fail in many ways, from missing libraries to missing attributes
        raise InputError(
            f"{env} cannot be drawn here ({type(error).__name__}: {error}); without a screen, MuJoCo needs EGL "
            "(Debian: libegl1, libgl1) or OSMesa (libosmesa6, with MUJOCO_GL=osmesa)"
        ) from None
    return stage


def go_along(stage: gym.Env[Any, Any]) -> None:
    """Films with the camera that follows the body, where a MuJoCo model has one; Gymnasium's own choice stands
    still in some tasks, and what runs leaves the picture."""
    renderer = getattr(stage.unwrapped, "mujoco_renderer", None)
    if renderer is not None:
        with contextlib.suppress(KeyError):
            renderer.camera_id = renderer.model.camera("track").id


def film(policy: Policy, env: str, seed: int, every: int = 1) -> Iterator[np.ndarray]:
    """Frames of one episode with the mean action, every so many steps."""
    stage = open_stage(env)
    try:
        check_same_task(policy, task_spec(stage, env), env)
        obs, _ = stage.reset(seed=seed)
        step, ended = 0, False
        while not ended:
            if step % every == 0:
                yield np.asarray(stage.render())
            obs, _, terminated, truncated, _ = stage.step(policy(obs))
            step, ended = step + 1, terminated or truncated
    finally:
        stage.close()


def beside(films: list[Iterator[np.ndarray]], height: int = HEIGHT) -> Iterator[np.ndarray]:
    """Pictures of equal height in a row; a film that has ended stands still."""
    from PIL import Image

    last: list[np.ndarray] = []
    for frames in zip_longest(*films):
        last = [frame if frame is not None else old for frame, old in zip_longest(frames, last)]
        pictures = []
        for frame in last:
            width = round(frame.shape[1] * height / frame.shape[0])
            pictures += [np.asarray(Image.fromarray(frame).resize((width, height)))]
            pictures += [np.full((height, GAP, 3), 255, np.uint8)]
        yield np.concatenate(pictures[:-1], axis=1)


def write_film(frames: Iterator[np.ndarray], path: Path, rate: float, longest: int) -> int:
    """Writes a .gif or .mp4, and says how many frames it has."""
    import imageio.v3 as iio

    if path.suffix not in (".gif", ".mp4"):
        raise InputError(f"{path} is neither .gif nor .mp4; name one of them")
    pictures = list(islice(frames, longest))
    try:
        if path.suffix == ".gif":
            iio.imwrite(path, pictures, duration=1000 / rate, loop=0)
        else:
            # Its codec takes even sizes only.
            even = [frame[: len(frame) // 2 * 2, : frame.shape[1] // 2 * 2] for frame in pictures]
            iio.imwrite(path, even, fps=rate, plugin="FFMPEG", macro_block_size=1)
    except ImportError:
        raise InputError("an .mp4 needs a package: pip install imageio-ffmpeg; or write a .gif") from None
    except OSError as error:
        raise InputError(f"cannot write {path} ({error.strerror or error}); choose another --out") from None
    return len(pictures)
