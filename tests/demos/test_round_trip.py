"""Writing .npz: episodes come back as they were, and a failure loses nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_array_equal

from valuedice.demos import Demos, Episode, load_demos, npz
from valuedice.errors import InputError

finite = st.floats(-1e6, 1e6, width=32)


@st.composite
def some_demos(draw: Any) -> Demos:
    """Episodes of mixed lengths and ends, continuous or discrete, with or without rewards."""
    features, dims = draw(st.integers(1, 3)), draw(st.integers(0, 2))  # 0 dims: discrete
    with_rewards, episodes = draw(st.booleans()), []
    for _ in range(draw(st.integers(1, 4))):
        steps = draw(st.integers(1, 5))
        path = draw(hnp.arrays(np.float32, (steps + 1, features), elements=finite))
        # A step counter, so that no episode starts where another one ended.
        path[:, 0] = 1000 * len(episodes) + np.arange(steps + 1)
        if dims:
            actions = draw(hnp.arrays(np.float32, (steps, dims), elements=finite))
        else:
            actions = draw(hnp.arrays(np.int64, steps, elements=st.integers(0, 5)))
        rewards = draw(hnp.arrays(np.float32, steps, elements=finite)) if with_rewards else None
        episodes.append(Episode(path[:-1], actions, path[1:], rewards, draw(st.booleans())))
    return Demos.from_episodes(episodes, "drawn")


def renamed(demos: Demos, path: Path, **names: str | None) -> Path:
    """Saves the demonstrations, with other names for some of the arrays; None drops one."""
    demos.save(path)
    with np.load(path) as arrays:
        kept = {names.get(key, key): arrays[key] for key in arrays}
    np.savez(path, **{key: array for key, array in kept.items() if key is not None})
    return path


def as_gymnasium(demos: Demos, path: Path) -> Demos:
    return load_demos(renamed(demos, path))


def as_d4rl(demos: Demos, path: Path) -> Demos:
    return load_demos(renamed(demos, path, terminations="terminals", truncations="timeouts"))


def as_d4rl_without_timeouts(demos: Demos, path: Path) -> Demos:
    return load_demos(renamed(demos, path, terminations="terminals", truncations=None))


def as_authors(demos: Demos, path: Path) -> Demos:
    """The format has one kind of end; the other is put back afterwards."""
    ended = Demos.from_episodes([replace(episode, terminated=True) for episode in demos.episodes], "ended")
    names = {"observations": "states", "next_observations": "next_states", "terminations": "dones"}
    back = load_demos(renamed(ended, path, **names, truncations=None), dones_are="terminated")
    assert all(episode.terminated for episode in back.episodes)
    ends = [episode.terminated for episode in demos.episodes]
    return Demos.from_episodes(
        [replace(episode, terminated=end) for episode, end in zip(back.episodes, ends, strict=True)], "authors"
    )


@pytest.mark.parametrize("through", [as_gymnasium, as_authors, as_d4rl, as_d4rl_without_timeouts])
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(demos=some_demos())
def test_episodes_survive_a_round_trip_through_every_format(tmp_path, through, demos):
    back = through(demos, tmp_path / "demos.npz")
    assert back.fingerprint() == demos.fingerprint()
    assert (back.expert_return, back.action_size) == (demos.expert_return, demos.action_size)
    for before, after in zip(demos.episodes, back.episodes, strict=True):
        assert before.terminated == after.terminated
        for name in ("observations", "actions", "next_observations", "rewards"):
            x, y = getattr(before, name), getattr(after, name)
            assert (x is None) == (y is None)
            if x is not None:
                assert x.dtype == y.dtype
                assert_array_equal(x, y)


ONE = Demos.from_episodes([Episode(np.zeros((2, 1)), np.zeros((2, 1)), np.ones((2, 1)))], "one")


def test_a_failed_save_keeps_the_old_file_and_leaves_nothing_behind(tmp_path, monkeypatch):
    path = tmp_path / "demos.npz"
    ONE.save(path)
    before = path.read_bytes()

    def full(file: Any, **_: Any) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(npz.np, "savez_compressed", full)
    with pytest.raises(InputError, match="No space left"):
        ONE.save(path)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["demos.npz"]


def test_a_file_is_saved_under_exactly_the_name_given_in_a_folder_that_exists(tmp_path):
    ONE.save(tmp_path / "copy.data")
    assert len(load_demos(tmp_path / "copy.data")) == 1
    with pytest.raises(InputError, match="cannot write"):
        ONE.save(tmp_path / "no" / "demos.npz")
