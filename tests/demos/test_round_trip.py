"""Writing .npz: episodes come back as they were, and a failure loses nothing."""

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
def some_demos(draw) -> Demos:
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


def as_gymnasium(demos: Demos, path: Path) -> Demos:
    demos.save(path)
    return load_demos(path)


def as_authors(demos: Demos, path: Path) -> Demos:
    """The dialect has one kind of end, so that each kind is written to a file of its own."""
    episodes = {}
    kinds: tuple[tuple[bool, npz.DonesAre], ...] = ((True, "terminated"), (False, "truncated"))
    for kind, dones_are in kinds:
        indices = [i for i, episode in enumerate(demos.episodes) if episode.terminated == kind]
        if indices:
            rows = concatenated([demos.episodes[i] for i in indices])
            renamed: dict[str, Any] = {"states": rows["observations"], "next_states": rows["next_observations"]}
            renamed |= {"actions": rows["actions"], "dones": rows["terminations"] | rows["truncations"]}
            np.savez(path, **renamed | ({"rewards": rows["rewards"]} if "rewards" in rows else {}))
            episodes |= dict(zip(indices, load_demos(path, dones_are=dones_are).episodes, strict=True))
    return Demos.from_episodes([episodes[i] for i in range(len(demos))], "authors")


def as_d4rl(demos: Demos, path: Path) -> Demos:
    rows = concatenated(list(demos.episodes))
    rows |= {"terminals": rows.pop("terminations"), "timeouts": rows.pop("truncations")}
    np.savez(path, **rows)
    return load_demos(path)


def as_d4rl_without_timeouts(demos: Demos, path: Path) -> Demos:
    rows = concatenated(list(demos.episodes))
    rows |= {"terminals": rows.pop("terminations")}
    del rows["truncations"]
    np.savez(path, **rows)
    return load_demos(path)


def concatenated(episodes: list[Episode]) -> dict[str, Any]:
    names = ["observations", "actions", "next_observations"]
    names += ["rewards"] if episodes[0].rewards is not None else []
    rows = {name: np.concatenate([getattr(e, name) for e in episodes]) for name in names}
    last = [np.arange(len(e)) == len(e) - 1 for e in episodes]
    rows["terminations"] = np.concatenate([x & e.terminated for x, e in zip(last, episodes, strict=True)])
    rows["truncations"] = np.concatenate(last) & ~rows["terminations"]
    return rows


@pytest.mark.parametrize("through", [as_gymnasium, as_authors, as_d4rl, as_d4rl_without_timeouts])
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(demos=some_demos())
def test_episodes_survive_a_round_trip_through_every_format(tmp_path, through, demos):
    back = through(demos, tmp_path / "demos.npz")
    assert len(back) == len(demos)
    assert back.expert_return == demos.expert_return
    assert back.action_size == demos.action_size
    for before, after in zip(demos.episodes, back.episodes, strict=True):
        assert before.terminated == after.terminated
        for name in ("observations", "actions", "next_observations", "rewards"):
            x, y = getattr(before, name), getattr(after, name)
            assert (x is None) == (y is None)
            if x is not None:
                assert x.dtype == y.dtype
                assert_array_equal(x, y)


@pytest.fixture
def demos() -> Demos:
    return Demos.from_episodes([Episode(np.zeros((2, 1)), np.zeros((2, 1)), np.ones((2, 1)))], "one")


def test_a_failed_save_keeps_the_old_file_and_leaves_nothing_behind(demos, tmp_path, monkeypatch):
    path = tmp_path / "demos.npz"
    demos.save(path)
    before = path.read_bytes()

    def full(file, **arrays):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(npz.np, "savez_compressed", full)
    with pytest.raises(InputError, match="No space left"):
        demos.save(path)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["demos.npz"]


def test_saving_into_a_missing_folder_is_refused(demos, tmp_path):
    with pytest.raises(InputError, match="cannot write"):
        demos.save(tmp_path / "no" / "demos.npz")


def test_a_file_is_saved_under_exactly_the_name_given(demos, tmp_path):
    demos.save(tmp_path / "copy.data")
    assert len(load_demos(tmp_path / "copy.data")) == 1
