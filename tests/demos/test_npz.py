"""Reading .npz: the three formats, and what is refused. Damaged and hostile files are in faults/."""

from __future__ import annotations

import pickle
import re
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from valuedice.demos import Demos, load_demos
from valuedice.errors import InputError

# Three episodes in six rows: terminated after 2, time limit after 3, cut after 1.
OBS = np.array([[0, 0], [1, 0], [10, 0], [11, 0], [12, 0], [20, 0]], np.float32)
NEXT = OBS + np.array([1, 0], np.float32)
ACTIONS = np.array([[0.1], [0.2], [0.3], [0.4], [0.5], [0.6]], np.float32)
REWARDS = np.array([1, 2, 4, 8, 16, 32], np.float32)
TERMINATED = np.array([0, 1, 0, 0, 0, 0], bool)
TRUNCATED = np.array([0, 0, 0, 0, 1, 0], bool)

ROWS = {"observations": OBS, "actions": ACTIONS, "next_observations": NEXT}
GYMNASIUM = {**ROWS, "terminations": TERMINATED, "truncations": TRUNCATED}
AUTHORS = {"states": OBS, "actions": ACTIONS, "next_states": NEXT, "dones": TERMINATED | TRUNCATED}
D4RL = {"observations": OBS, "actions": ACTIONS, "terminals": TERMINATED}

Store = Callable[..., Path]


@pytest.fixture
def store(tmp_path) -> Store:
    def save(base: dict[str, Any], **changes: Any) -> Path:
        arrays: dict[str, Any] = base | changes
        np.savez(tmp_path / "demos.npz", **arrays)
        return tmp_path / "demos.npz"

    return save


def shape(demos: Demos) -> list[tuple[int, bool]]:
    """Length of each episode, and whether it terminated."""
    return [(len(episode), episode.terminated) for episode in demos.episodes]


def refused(path: Any, **options: Any) -> str:
    """The message with which a file is refused, which must be one line."""
    with pytest.raises(InputError) as caught:
        load_demos(path, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_rows_split_after_each_end_and_the_rest_is_a_cut_episode(store):
    demos = load_demos(store(GYMNASIUM, rewards=REWARDS))
    assert shape(demos) == [(2, True), (3, False), (1, False)]
    assert [episode.total_reward for episode in demos.episodes] == [3, 28, 32]
    assert demos.expert_return == 21
    assert_array_equal(demos.episodes[1].observations, OBS[2:5])
    assert_array_equal(demos.episodes[1].next_observations, NEXT[2:5])
    assert_array_equal(demos.episodes[1].actions, ACTIONS[2:5])


NO_ENDS = np.zeros(6, bool)


@pytest.mark.parametrize(
    ("base", "changes", "expected"),
    [
        # A row that is both terminated and truncated is terminated.
        (GYMNASIUM, {"truncations": TERMINATED | TRUNCATED}, [(2, True), (3, False), (1, False)]),
        # Gaps do not split episodes if their ends are known.
        (GYMNASIUM, {"terminations": NO_ENDS, "truncations": NO_ENDS}, [(6, False)]),
        (D4RL, {"timeouts": TRUNCATED, "next_observations": NEXT}, [(2, True), (3, False), (1, False)]),
        # Without timeouts they do.
        (D4RL, {"next_observations": NEXT}, [(2, True), (3, False), (1, False)]),
        # Without next observations, the last row of a truncated episode is dropped: nothing is left of the third.
        (D4RL, {"timeouts": TRUNCATED}, [(2, True), (2, False)]),
    ],
)
def test_episodes_end_as_each_format_says(store, base, changes, expected):
    assert shape(load_demos(store(base, **changes))) == expected


def test_without_next_observations_the_next_row_is_used(store):
    ended, cut = load_demos(store(D4RL, timeouts=TRUNCATED, rewards=REWARDS)).episodes
    assert_array_equal(cut.observations, OBS[2:4])
    assert_array_equal(cut.next_observations, OBS[3:5])
    assert_array_equal(cut.rewards, [4, 8])
    # A terminated episode keeps its last row; its s′ stands for the absorbing state.
    assert_array_equal(ended.observations, OBS[:2])
    assert_array_equal(ended.next_observations, OBS[[1, 1]])


@pytest.mark.parametrize("dtype", [bool, np.int64, np.uint8, np.float32])
@pytest.mark.parametrize("size", [(6,), (6, 1)])
def test_flags_may_be_any_zeros_and_ones(store, dtype, size):
    demos = load_demos(store(GYMNASIUM, terminations=TERMINATED.astype(dtype).reshape(size)))
    assert shape(demos) == [(2, True), (3, False), (1, False)]


def test_dones_count_as_time_limits_with_one_warning(store):
    path = store(AUTHORS)
    with pytest.warns(UserWarning, match=r"dones do not distinguish .*set `dones_are` to") as caught:
        demos = load_demos(path)
    assert [warning.filename for warning in caught] == [__file__]
    assert shape(demos) == [(2, False), (3, False), (1, False)]
    assert demos.expert_return is None
    assert demos.episodes[0].rewards is None


@pytest.mark.parametrize(
    ("dones_are", "expected"), [("truncated", [False] * 3), ("terminated", [True, True, False])]
)
def test_saying_what_dones_are_silences_the_warning(store, dones_are, expected):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [end for _, end in shape(load_demos(store(AUTHORS), dones_are=dones_are))] == expected


def test_extra_keys_are_ignored_without_being_read(store):
    path = store(GYMNASIUM, **{"metadata/name": np.array("hopper"), "infos": np.array([{}], object)})
    assert len(load_demos(path)) == 3


INTEGERS = np.array([0, 1, 2, 0, 1, 2])


@pytest.mark.parametrize(
    ("actions", "discrete", "size", "second"),
    [
        (INTEGERS, True, 3, [2, 0, 1]),
        (INTEGERS[:, None].astype(np.uint8), True, 3, [2, 0, 1]),
        (TERMINATED, True, 2, [0, 0, 0]),
        (ACTIONS[:, 0].astype(np.float64), False, 1, ACTIONS[2:5]),
        (np.ones((6, 2), int), False, 2, np.ones((3, 2))),
    ],
)
def test_one_integer_or_boolean_per_row_is_a_discrete_action_and_anything_else_is_not(
    store, actions, discrete, size, second
):
    demos = load_demos(store(GYMNASIUM, actions=actions))
    assert (demos.discrete, demos.action_size) == (discrete, size)
    assert demos.episodes[1].actions.dtype == (np.int64 if discrete else np.float32)
    assert_array_equal(demos.episodes[1].actions, second)


def changed(array: np.ndarray, index: Any, value: float) -> np.ndarray:
    copy = array.astype(np.float64)
    copy[index] = value
    return copy


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"observations": changed(OBS, (3, 1), np.nan)}, r"observations .*NaN at row 3, column 1 .*episode 1"),
        ({"actions": changed(ACTIONS, (5, 0), np.inf)}, r"actions .*infinity.* row 5, column 0 .*episode 2"),
        ({"next_observations": changed(NEXT, (0, 0), 1e39)}, r"next_obs.*float32.* row 0, column 0"),
        ({"rewards": changed(REWARDS, 2, np.nan)}, r"rewards .*NaN at row 2 .*episode 1"),
        ({"actions": ACTIONS[:5]}, r"different length: observations 6, actions 5"),
        ({"next_observations": NEXT[:, :1]}, r"observations has 2 columns, next_observations 1"),
        ({"observations": np.zeros((6, 8, 8, 3))}, r"shape \(6, 8, 8, 3\).*flatten.*encode"),
        ({"observations": np.zeros(6)}, r"shape \(6,\).*reshape"),
        ({"observations": np.zeros((6, 0))}, r"no features"),
        ({"actions": np.zeros((6, 2, 2))}, r"actions has shape \(6, 2, 2\)"),
        ({"actions": np.float32(1)}, r"actions is a scalar"),
        ({"actions": np.array([0, 1, 0, -1, 0, 0])}, r"discrete action -1 at row 3"),
        ({"actions": np.array(list("abcdef"))}, r"actions holds <U1, not numbers"),
        ({"terminations": np.array([0, 2, 0, 0, 0, 0])}, r"terminations holds 2 at row 1"),
        ({"terminations": np.full(6, np.nan)}, r"terminations holds nan at row 0"),
        ({"truncations": np.zeros((6, 2))}, r"truncations has shape \(6, 2\)"),
        ({"observations": np.array([{}] * 6, object)}, r"pickled objects"),
        ({key: value[:0] for key, value in GYMNASIUM.items()}, r"holds no rows"),
    ],
)
def test_a_bad_array_is_refused_with_its_place(store, changes, says):
    path = store(GYMNASIUM, **changes)
    message = refused(path)
    assert message.startswith(str(path))
    assert re.search(says, message)


def test_nan_passes_without_the_check(store):
    demos = load_demos(store(GYMNASIUM, actions=changed(ACTIONS, (5, 0), np.nan)), check=False)
    assert np.isnan(demos.episodes[2].actions[0, 0])


@pytest.mark.parametrize(
    ("base", "changes", "options", "says"),
    [
        (AUTHORS, {}, {"dones_are": "both"}, ["`dones_are` is 'both'", '"terminated"']),
        (D4RL, {}, {}, ["timeouts", "next_observations"]),
        (D4RL, {"timeouts": ~NO_ENDS, "terminals": NO_ENDS}, {}, ["no step has a known next observation"]),
        ({"obs": OBS}, {}, {}, ["'obs'", "Gymnasium", "terminations", "next_states", "D4RL", "terminals"]),
    ],
)
def test_a_file_that_says_too_little_is_refused_with_what_is_missing(store, base, changes, options, says):
    message = refused(store(base, **changes), **options)
    assert all(part in message for part in says)


def test_a_missing_file_and_a_directory_are_told_apart(tmp_path):
    missing = tmp_path / "no.npz"
    assert refused(missing).startswith(f"no demonstrations at {missing}; give the path of an .npz file")
    assert "is a directory" in refused(tmp_path)
    assert "no demonstrations" in refused("")


def test_other_kinds_of_file_are_refused_by_name(tmp_path):
    path = tmp_path / "file.npz"
    kinds = {b"": "empty", b"s,a\n1,2\n": "not an npz", pickle.dumps({"a": 1}): "pickle", b"\x93NUMPY\x01": ".npy"}
    for content, says in kinds.items():
        path.write_bytes(content)
        assert says in refused(path)
    with zipfile.ZipFile(path, "w"):
        pass
    assert "found none" in refused(path)
