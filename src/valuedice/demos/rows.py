"""Demonstrations as weighted rows for training: normalised, encoded, with absorbing states."""

from __future__ import annotations

import numpy as np

from valuedice.demos.episodes import Demos, Episode
from valuedice.replay import Replay
from valuedice.types import InitialStates, Normalizer, Sampling, Spec, Transition


def fill_replay(replay: Replay, demos: Demos, spec: Spec, normalizer: Normalizer) -> None:
    """Adds every episode to the replay buffer."""
    for episode in demos.episodes:
        obs, next_obs = normalizer(episode.observations), normalizer(episode.next_observations)
        action = spec.encode(episode.actions)
        rewards = np.zeros(len(episode)) if episode.rewards is None else episode.rewards
        for row in range(len(episode)):
            end = row == len(episode) - 1
            terminated = end and episode.terminated
            replay.add(obs[row], action[row], next_obs[row], rewards[row], terminated=terminated, truncated=end)


def flow_weights(initial: np.ndarray, discount: float, *, terminated: bool) -> np.ndarray:
    """Discounted occupancy of an episode's rows, d_t = (1-γ) p_t + γ d_{t-1}. Virtual trajectories begin with the
    weights p = `initial`.

    A terminated episode has one more row, the absorbing state, of weight γ d_T / (1-γ). In a truncated episode each
    virtual trajectory is renormalised to the recorded rows.
    """
    remaining = np.arange(len(initial), 0, -1)
    begin = initial if terminated else initial / (1 - discount**remaining)
    weights = np.empty(len(initial))
    flow = 0.0
    for row, weight in enumerate(begin):
        flow = weights[row] = (1 - discount) * weight + discount * flow
    return np.append(weights, discount * flow / (1 - discount)) if terminated else weights


def episode_weights(length: int, terminated: bool, sampling: Sampling) -> tuple[np.ndarray, np.ndarray]:
    """Weights of an episode's rows as transitions and as initial states; a terminated episode's self-loop is last.

    With uniform sampling, ordinary rows have weight 1. The flow equation d = (1-γ) p0 + γ Pᵀd then holds if the
    self-loop has weight γ/(1-γ), and the start, into which nothing flows, 1/(1-γ) as an initial state. A truncated
    episode has no exact weights, because what follows its end is unknown: all its rows have the same weight.
    """
    gamma = sampling.discount
    starts = np.zeros(length)
    starts[0] = 1
    everywhere = np.ones(length)
    initial = starts if sampling.initial_states == "starts" else everywhere
    if sampling.scheme == "geometric":
        rows = flow_weights(initial, gamma, terminated=terminated)
    elif not terminated:
        rows = everywhere
    elif sampling.absorbing != "exact":
        rows = np.append(everywhere, float(sampling.absorbing == "single"))
    else:
        rows = np.append(everywhere, gamma / (1 - gamma))
        if sampling.initial_states == "all":
            initial = everywhere + starts * gamma / (1 - gamma)
    return rows, np.append(initial, 0.0) if terminated else initial


def kept_weights(episode: Episode, sampling: Sampling) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights of an episode's rows as transitions and as initial states; if it is a part, also of its true start.

    If one step in N was kept, each stands for N: averaged over all offsets, the weights are the whole episode's.
    What is always kept stands for itself: the step into the absorbing state, the self-loop, and the true start.
    """
    part = episode.part
    if part is None:
        return *episode_weights(len(episode), episode.terminated, sampling), np.zeros(0)
    rows, initial = episode_weights(part.length, episode.terminated, sampling)
    numbers, stands_for = part.times, np.full(len(episode), float(part.every))
    if episode.terminated:
        numbers, stands_for[-1] = np.append(numbers, part.length), 1
        stands_for = np.append(stands_for, 1)
    anywhere = float(sampling.initial_states == "all")
    states = np.minimum(initial[numbers], anywhere)
    return stands_for * rows[numbers], stands_for * states, initial[:1] - anywhere


class ExpertRows:
    """All rows of the demonstrations, and the probability with which each is drawn."""

    def __init__(self, demos: Demos, spec: Spec, normalizer: Normalizer, sampling: Sampling) -> None:
        self.sampling = sampling
        self.store = Replay(spec, sum(len(episode) + episode.terminated for episode in demos.episodes))
        fill_replay(self.store, demos, spec, normalizer)
        weights = [kept_weights(episode, sampling) for episode in demos.episodes]
        rows, initial, begin = (np.concatenate(parts) for parts in zip(*weights, strict=True))
        # Starts of parts follow the rows. They have no absorbing mark.
        starts = [normalizer(episode.part.start) for episode in demos.episodes if episode.part is not None]
        marked = np.pad(np.array(starts, np.float32).reshape(-1, spec.obs_size), ((0, 0), (0, 1)))
        self._states = np.concatenate([self.store.obs[: len(self.store)], marked])
        initial = np.concatenate([initial, begin])
        self._whole = not starts
        self.weight, self.initial_weight = rows / rows.sum(), initial / initial.sum()
        self._cumulative = _cumulative(rows)
        self._initial_cumulative = _cumulative(initial)

    def all(self) -> Transition:
        """Every row once, with its weight."""
        return self.store.rows(np.arange(len(self.store)))._replace(weight=self.weight)

    def initial(self) -> InitialStates:
        """Every state once, with its weight as an initial state."""
        return InitialStates(self._states, self.initial_weight)

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[Transition, InitialStates]:
        """Random transitions and initial states; geometric sampling takes both from one virtual trajectory, unless
        steps were left out: then it takes each by its own weight, which is the same on average."""
        start = _pick(rng, self._initial_cumulative, shape)
        if self.sampling.scheme == "geometric" and self._whole:
            row = self.store.ahead(rng, start, self.sampling.discount)
        else:
            row = _pick(rng, self._cumulative, shape)
        return self.store.rows(row), InitialStates(self._states[start])


def _pick(rng: np.random.Generator, cumulative: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Random row numbers with probabilities in proportion to the weights."""
    return np.searchsorted(cumulative, rng.random(shape), side="right")


def _cumulative(weights: np.ndarray) -> np.ndarray:
    """Cumulative weights. The last is exactly 1, so any number below 1 finds a row of positive weight."""
    sums = np.cumsum(weights)
    return sums / sums[-1]
