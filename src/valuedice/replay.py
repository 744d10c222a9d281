"""The replay buffer, and rollouts of the current policy."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from valuedice.types import Rollout, Sampling, Spec, Transition


class Replay:
    """A ring buffer of the newest `capacity` rows, which knows where their episodes begin and end. If an episode
    terminates, its last s′ becomes the absorbing state, and one row with the absorbing state's self-loop follows.

    Rows are numbered in the order in which they are added. A row's slot is its number modulo the capacity.
    """

    def __init__(self, spec: Spec, capacity: int) -> None:
        # A terminated episode writes two rows at once.
        self.capacity = max(capacity, 2)
        # The system allocates zeroed memory on first use, so a large capacity costs nothing until it is filled.
        self.obs = np.zeros((self.capacity, spec.obs_size + 1), np.float32)
        self.action = np.zeros((self.capacity, spec.action_size), np.float32)
        self.next_obs = np.zeros((self.capacity, spec.obs_size + 1), np.float32)
        self.reward = np.zeros(self.capacity, np.float32)
        self.first = np.zeros(self.capacity, np.int64)
        """Number of the first row of the row's episode."""
        self.last = np.zeros(self.capacity, np.int64)
        """Number of the last row of the row's episode; -1 while the episode is open."""
        self.looped = np.zeros(self.capacity, bool)
        """Whether that last row is a self-loop of the absorbing state."""
        self.count = 0
        self.episode_start = 0

    def __len__(self) -> int:
        return min(self.count, self.capacity)

    def add(
        self,
        obs: np.ndarray,
        action: np.ndarray,
        next_obs: np.ndarray,
        reward: float = 0.0,
        *,
        terminated: bool,
        truncated: bool,
    ) -> None:
        """Adds one transition, with normalised observations and an encoded action. The reward in the absorbing
        state is 0."""
        slot = self._append()
        self.obs[slot, :-1], self.obs[slot, -1] = obs, 0
        self.action[slot], self.reward[slot] = action, reward
        self.next_obs[slot, :-1], self.next_obs[slot, -1] = (0, 1) if terminated else (next_obs, 0)
        if terminated:
            loop = self._append()
            self.obs[loop], self.action[loop] = self.next_obs[slot], 0
            self.next_obs[loop], self.reward[loop] = self.next_obs[slot], 0
        if terminated or truncated:
            self._close(terminated)

    def _append(self, rows: int = 1) -> Any:
        """Slots of new rows of the open episode: an integer for one row, otherwise an array."""
        slots = (
            self.count % self.capacity if rows == 1 else np.arange(self.count, self.count + rows) % self.capacity
        )
        self.first[slots], self.last[slots], self.looped[slots] = self.episode_start, -1, False
        self.count += rows
        return slots

    def _close(self, terminated: bool) -> None:
        live = np.arange(max(self.episode_start, self.oldest), self.count) % self.capacity
        self.last[live], self.looped[live] = self.count - 1, terminated
        self.episode_start = self.count

    def clear(self) -> None:
        """Removes all rows."""
        self.count = self.episode_start = 0

    def cut(self) -> None:
        """Truncates the open episode, if there is one."""
        if self.count > self.episode_start:
            self._close(terminated=False)

    @property
    def oldest(self) -> int:
        """Number of the oldest row in the buffer."""
        return max(0, self.count - self.capacity)

    def rows(self, numbers: np.ndarray) -> Transition:
        """The transitions with these numbers."""
        slots = numbers % self.capacity
        return Transition(self.obs[slots], self.action[slots], self.next_obs[slots], self.reward[slots])

    def export(self, start: int, stop: int) -> np.ndarray:
        """Rows `start` to `stop` as a matrix [s, a, s′, r, end], for a checkpoint. `end` is 1 if the episode was
        truncated there, 2 if it terminated."""
        numbers = np.arange(start, stop)
        slots = numbers % self.capacity
        end = (self.last[slots] == numbers) * (1 + self.looped[slots])
        parts = [self.obs[slots], self.action[slots], self.next_obs[slots], self.reward[slots, None], end[:, None]]
        return np.concatenate(parts, axis=1, dtype=np.float32)

    @property
    def width(self) -> int:
        """Number of columns of an exported matrix."""
        return 2 * self.obs.shape[1] + self.action.shape[1] + 2

    def restore(self, first: int, matrix: np.ndarray) -> None:
        """Appends exported rows, numbered from `first`. Call it in the order of the numbers."""
        if not self.count:
            self.count = self.episode_start = first
        widths = np.cumsum([self.obs.shape[1], self.action.shape[1], self.obs.shape[1], 1])
        ends = np.flatnonzero(matrix[:, -1])
        for start, stop in pairwise([0, *(ends + 1).tolist(), len(matrix)]):
            if stop > start:
                rows = matrix[start:stop]
                slots = np.atleast_1d(self._append(stop - start))
                self.obs[slots], self.action[slots], self.next_obs[slots], reward, end = np.split(
                    rows, widths, axis=1
                )
                self.reward[slots] = reward[:, 0]
                if end[-1, 0]:
                    self._close(terminated=end[-1, 0] == 2)

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...], sampling: Sampling) -> Transition:
        """Random rows. Geometric sampling from starts takes the start of a random row's episode, so it favours long
        episodes. This is harmless: ValueDICE and DualDICE use the same rows in both terms of their objectives."""
        numbers = rng.integers(self.oldest, self.count, shape)
        if sampling.scheme == "geometric":
            if sampling.initial_states == "starts":
                numbers = np.maximum(self.first[numbers % self.capacity], self.oldest)
            numbers = self.ahead(rng, numbers, sampling.discount)
        return self.rows(numbers)

    def ahead(self, rng: np.random.Generator, numbers: np.ndarray, discount: float) -> np.ndarray:
        """Numbers of the rows k steps later in the same episode, k = 0, 1, … ~ Geometric(1-γ). If the episode
        terminated, steps past its end stay in the self-loop; otherwise k is drawn from the recorded steps only."""
        slots = numbers % self.capacity
        last = np.where(self.last[slots] < 0, self.count - 1, self.last[slots])
        mass = np.where(self.looped[slots], 1.0, 1 - discount ** (last - numbers + 1))
        offset = np.log1p(-rng.random(numbers.shape) * mass) / np.log(discount)
        return numbers + np.minimum(offset.astype(np.int64), last - numbers)


class Rollouts:
    """The newest steps of parallel environments: the data of one on-policy update."""

    def __init__(self, spec: Spec, times: int, environments: int) -> None:
        shape = (times, environments)
        self.obs = np.zeros((*shape, spec.obs_size + 1), np.float32)
        self.action = np.zeros((*shape, spec.action_size), np.float32)
        self.next_obs = np.zeros((*shape, spec.obs_size + 1), np.float32)
        self.reward = np.zeros(shape, np.float32)
        self.ended = np.zeros(shape, bool)
        self.count = 0
        """Number of calls of `add`; a rollout is complete at each multiple of `times`."""

    def add(
        self,
        obs: np.ndarray,
        action: np.ndarray,
        next_obs: np.ndarray,
        reward: np.ndarray,
        *,
        terminated: np.ndarray,
        truncated: np.ndarray,
    ) -> None:
        """Adds one step of each environment, with normalised observations and encoded actions. If an episode
        terminates, its last s′ becomes the absorbing state."""
        slot = self.count % len(self.obs)
        self.obs[slot, :, :-1], self.obs[slot, :, -1] = obs, 0
        self.action[slot], self.reward[slot] = action, reward
        self.next_obs[slot, :, :-1] = np.where(terminated[:, None], 0, next_obs)
        self.next_obs[slot, :, -1] = terminated
        self.ended[slot] = terminated | truncated
        self.count += 1

    def cut(self, environment: int) -> None:
        """Truncates the open episode of one environment."""
        if self.count:
            self.ended[(self.count - 1) % len(self.obs), environment] = True

    def newest(self) -> Rollout:
        """A copy of the rollout, in time order once it is complete. Until then, steps repeat to fill the shape."""
        times = np.arange(len(self.obs)) % min(self.count, len(self.obs))
        return Rollout(*(part[times] for part in self._arrays()))

    def _arrays(self) -> Rollout:
        return Rollout(self.obs, self.action, self.next_obs, self.reward, self.ended)

    def save(self) -> tuple[dict[str, np.ndarray], int]:
        """The arrays and the count that `restore` takes."""
        return self._arrays()._asdict(), self.count

    def restore(self, arrays: dict[str, np.ndarray], count: int) -> None:
        """Continues from what `save` returned."""
        for name, array in self._arrays()._asdict().items():
            array[:] = arrays[name]
        self.count = count
