"""Reading .npz: the three dialects, and every input that must be refused."""

import contextlib
import pickle
import re
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from valuedice.demos import Demos, load_demos
from valuedice.errors import InputError

# Three episodes in six rows: terminated after 2, time limit after 3, cut after 1.
OBS = np.array([[0, 0], [1, 0], [10, 0], [11, 0], [12, 0], [20, 0]], np.float32)
NEXT = np.array([[1, 0], [2, 0], [11, 0], [12, 0], [13, 0], [21, 0]], np.float32)
ACTIONS = np.array([[0.1], [0.2], [0.3], [0.4], [0.5], [0.6]], np.float32)
REWARDS = np.array([1, 2, 4, 8, 16, 32], np.float32)
TERMINATED = np.array([0, 1, 0, 0, 0, 0], bool)
TRUNCATED = np.array([0, 0, 0, 0, 1, 0], bool)

GYMNASIUM = {
    "observations": OBS,
    "actions": ACTIONS,
    "next_observations": NEXT,
    "terminations": TERMINATED,
    "truncations": TRUNCATED,
}
AUTHORS = {"states": OBS, "actions": ACTIONS, "next_states": NEXT, "dones": TERMINATED | TRUNCATED}
D4RL = {"observations": OBS, "actions": ACTIONS, "terminals": TERMINATED}


@pytest.fixture
def store(tmp_path):
    def save(base: dict, **changes) -> Path:
        path = tmp_path / "demos.npz"
        np.savez(path, **(base | changes))
        return path

    return save


def lengths(demos: Demos) -> list[int]:
    return [len(episode) for episode in demos.episodes]


def ends(demos: Demos) -> list[bool]:
    return [episode.terminated for episode in demos.episodes]


def refused(path, **options) -> str:
    """The message with which a file is refused, which must be one line."""
    with pytest.raises(InputError) as caught:
        load_demos(path, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_gymnasium_rows_split_after_each_flag_and_the_rest_is_a_cut_episode(store):
    demos = load_demos(store(GYMNASIUM, rewards=REWARDS))
    assert lengths(demos) == [2, 3, 1]
    assert ends(demos) == [True, False, False]
    assert [episode.total_reward for episode in demos.episodes] == [3, 28, 32]
    assert demos.expert_return == 21
    assert_array_equal(demos.episodes[1].observations, OBS[2:5])
    assert_array_equal(demos.episodes[1].next_observations, NEXT[2:5])
    assert_array_equal(demos.episodes[1].actions, ACTIONS[2:5])


def test_a_row_both_terminated_and_truncated_is_terminated(store):
    assert ends(load_demos(store(GYMNASIUM, truncations=TERMINATED | TRUNCATED))) == [True, False, False]


def test_gaps_do_not_split_episodes_of_the_gymnasium_dialect(store):
    no_ends = np.zeros(6, bool)
    assert lengths(load_demos(store(GYMNASIUM, terminations=no_ends, truncations=no_ends))) == [6]


@pytest.mark.parametrize("dtype", [bool, np.int64, np.uint8, np.float32])
@pytest.mark.parametrize("shape", [(6,), (6, 1)])
def test_flags_may_be_any_zeros_and_ones(store, dtype, shape):
    path = store(GYMNASIUM, terminations=TERMINATED.astype(dtype).reshape(shape))
    assert ends(load_demos(path)) == [True, False, False]


def test_dones_count_as_time_limits_with_one_warning(store):
    path = store(AUTHORS)
    with pytest.warns(UserWarning, match="dones") as caught:
        demos = load_demos(path)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert ends(demos) == [False, False, False]
    assert lengths(demos) == [2, 3, 1]
    assert demos.expert_return is None
    assert demos.episodes[0].rewards is None


@pytest.mark.parametrize(
    ("dones_are", "expected"), [("truncated", [False] * 3), ("terminated", [True, True, False])]
)
def test_saying_what_dones_are_silences_the_warning(store, dones_are, expected):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ends(load_demos(store(AUTHORS), dones_are=dones_are)) == expected


def test_an_unknown_meaning_of_dones_is_refused(store):
    assert '"terminated"' in refused(store(AUTHORS), dones_are="both")


def test_d4rl_with_everything_reads_as_gymnasium(store):
    demos = load_demos(store(D4RL, timeouts=TRUNCATED, next_observations=NEXT, rewards=REWARDS))
    assert (lengths(demos), ends(demos), demos.expert_return) == ([2, 3, 1], [True, False, False], 21)


def test_d4rl_without_timeouts_breaks_at_gaps(store):
    demos = load_demos(store(D4RL, next_observations=NEXT))
    assert (lengths(demos), ends(demos)) == ([2, 3, 1], [True, False, False])


def test_d4rl_without_next_observations_drops_the_last_row_of_truncated_episodes(store):
    demos = load_demos(store(D4RL, timeouts=TRUNCATED, rewards=REWARDS))
    # The cut episode had one row, so that nothing is left of it.
    assert (lengths(demos), ends(demos)) == ([2, 2], [True, False])
    assert_array_equal(demos.episodes[1].observations, OBS[2:4])
    assert_array_equal(demos.episodes[1].next_observations, OBS[3:5])
    assert_array_equal(demos.episodes[1].rewards, [4, 8])
    # A terminated episode keeps its last row; its s′ stands for the absorbing state.
    assert_array_equal(demos.episodes[0].observations, OBS[:2])
    assert_array_equal(demos.episodes[0].next_observations, OBS[[1, 1]])


def test_d4rl_without_timeouts_and_next_observations_is_refused_with_the_reason(store):
    message = refused(store(D4RL))
    assert "timeouts" in message
    assert "next_observations" in message


def test_d4rl_with_no_row_whose_successor_is_known_is_refused(store):
    assert "next_observations" in refused(store(D4RL, timeouts=np.ones(6), terminals=np.zeros(6)))


def test_extra_keys_are_ignored_without_being_read(store):
    path = store(GYMNASIUM, **{"metadata/name": np.array("hopper"), "infos": np.array([{}], object)})
    assert len(load_demos(path)) == 3


@pytest.mark.parametrize(
    "actions", [np.array([0, 1, 2, 0, 1, 2]), np.array([[0], [1], [2], [0], [1], [2]], np.uint8)]
)
def test_one_integer_a_row_is_a_discrete_action(store, actions):
    demos = load_demos(store(GYMNASIUM, actions=actions))
    assert demos.discrete
    assert demos.action_size == 3
    assert demos.episodes[0].actions.dtype == np.int64
    assert_array_equal(demos.episodes[1].actions, [2, 0, 1])


def test_booleans_are_discrete_actions(store):
    demos = load_demos(store(GYMNASIUM, actions=TERMINATED))
    assert demos.discrete
    assert demos.action_size == 2


def test_one_float_a_row_is_a_continuous_action_of_one_dimension(store):
    demos = load_demos(store(GYMNASIUM, actions=ACTIONS[:, 0].astype(np.float64)))
    assert not demos.discrete
    assert demos.action_size == 1
    assert demos.episodes[0].actions.dtype == np.float32
    assert_array_equal(demos.episodes[0].actions, ACTIONS[:2])


def test_several_integers_a_row_are_a_continuous_action(store):
    demos = load_demos(store(GYMNASIUM, actions=np.ones((6, 2), int)))
    assert (demos.discrete, demos.action_size, demos.episodes[0].actions.dtype) == (False, 2, np.float32)


def changed(array: np.ndarray, index, value) -> np.ndarray:
    copy = array.astype(np.float64)
    copy[index] = value
    return copy


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"observations": changed(OBS, (3, 1), np.nan)},
            r"observations .*NaN at row 3, column 1 .*episode 1",
        ),
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


def test_unknown_keys_are_refused_with_the_dialects_and_the_keys_found(store):
    message = refused(store({"obs": OBS, "acts": ACTIONS}))
    for part in ("'obs'", "'acts'", "Gymnasium", "terminations", "next_states", "D4RL", "terminals"):
        assert part in message


def test_an_archive_without_arrays_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "none.npz", "w"):
        pass
    assert "found none" in refused(tmp_path / "none.npz")


def test_a_missing_file_and_a_directory_are_told_apart(tmp_path):
    missing = tmp_path / "no.npz"
    assert refused(missing).startswith(f"no demonstrations at {missing}; give the path of an .npz file")
    assert "is a directory" in refused(tmp_path)
    assert "no demonstrations" in refused("")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (b"s,a\n1,2\n", "not an npz"),
        (pickle.dumps({"a": 1}), "pickle"),
        (b"\x93NUMPY\x01", ".npy"),
    ],
)
def test_other_kinds_of_file_are_refused_by_name(tmp_path, content, says):
    path = tmp_path / "file.npz"
    path.write_bytes(content)
    assert says in refused(path)


def test_every_truncation_of_a_file_is_refused(store):
    path = store(GYMNASIUM)
    content = path.read_bytes()
    for size in range(8, len(content), 37):
        path.write_bytes(content[:size])
        assert "truncated or corrupt" in refused(path)


def test_damaged_bytes_never_raise_anything_but_an_input_error(store):
    content = store(GYMNASIUM).read_bytes()
    random = np.random.default_rng(0)
    for _ in range(300):
        path = store(GYMNASIUM)
        damaged = bytearray(content)
        damaged[random.integers(len(content))] = random.integers(256)
        path.write_bytes(damaged)
        with contextlib.suppress(InputError):  # some bytes, dates for example, are read by no one
            load_demos(path)
