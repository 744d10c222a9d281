"""`valuedice play`."""

from __future__ import annotations

from pathlib import Path

import imageio.v3 as iio
import pytest
from tasks import box, linear_policy

pytestmark = pytest.mark.usefixtures("own_folder")


@pytest.mark.parametrize("rate", ["nan", "inf", "0"])
def test_an_impossible_rate_is_refused_before_anything_is_filmed(rate, refused):
    message = refused("play", "policy", "--out", "x.gif", "--rate", rate)
    assert message.endswith(f"--rate is {float(rate)}; it must be finite and at least 0.1\n")


def test_without_a_policy_nothing_is_filmed(refused):
    assert "no policy given" in refused("play", "--out", "x.gif")


def test_two_policies_are_filmed_side_by_side(run):
    for slope in (-1, 1):
        linear_policy(box(17, 6), slope).save(Path(f"{slope}.safetensors"))
    command = (
        "play",
        "-1.safetensors",
        "1.safetensors",
        "--env",
        "HalfCheetah-v5",
        "--frames",
        3,
        "--out",
        "film.gif",
    )
    result = run(*command)
    if "cannot be drawn here" in result.err:
        pytest.skip(result.err)
    assert (result.code, result.out, result.err) == (0, "film.gif: 3 frames, 0.1 s\n", "")
    frames, height, width, _ = iio.imread("film.gif").shape
    assert frames == 3
    assert width > height
