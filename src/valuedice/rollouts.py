"""Environment steps of the policy itself → rollouts, for algorithms that learn from nothing older."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from valuedice.explore import Stage
from valuedice.policy import Policy
from valuedice.types import Normalizer, Rollout, Spec


class Rollouts:
    """The newest rows of several environments, as many as one update learns from."""

    def __init__(self, spec: Spec, times: int, environments: int) -> None:
        shape = (times, environments)
        self.obs = np.zeros((*shape, spec.obs_size + 1), np.float32)
        self.action = np.zeros((*shape, spec.action_size), np.float32)
        self.next_obs = np.zeros((*shape, spec.obs_size + 1), np.float32)
        self.ended = np.zeros(shape, bool)
        self.count = 0
        """Times ever added; the rollout is complete whenever they are a multiple of its length."""

    def add(
        self,
        obs: np.ndarray,
        action: np.ndarray,
        next_obs: np.ndarray,
        *,
        terminated: np.ndarray,
        truncated: np.ndarray,
    ) -> None:
        """One normalised observation and one encoded action of each environment. A terminating s′ becomes the
        absorbing state."""
        slot = self.count % len(self.obs)
        self.obs[slot, :, :-1], self.obs[slot, :, -1] = obs, 0
        self.action[slot] = action
        self.next_obs[slot, :, :-1] = np.where(terminated[:, None], 0, next_obs)
        self.next_obs[slot, :, -1] = terminated
        self.ended[slot] = terminated | truncated
        self.count += 1

    def cut(self, environment: int) -> None:
        """Ends the open episode of one environment as a time limit would."""
        if self.count:
            self.ended[(self.count - 1) % len(self.obs), environment] = True

    def newest(self) -> Rollout:
        """A copy, in the order of time where the rollout is complete. Of one shape always: while there are fewer
        rows than that, they are repeated."""
        times = np.arange(len(self.obs)) % min(self.count, len(self.obs))
        return Rollout(self.obs[times], self.action[times], self.next_obs[times], self.ended[times])

    def save(self) -> tuple[dict[str, np.ndarray], int]:
        """Arrays and the count, from which `restore` goes on."""
        return {"obs": self.obs, "action": self.action, "next_obs": self.next_obs, "ended": self.ended}, self.count

    def restore(self, arrays: dict[str, np.ndarray], count: int) -> None:
        """Goes on where another one was saved."""
        self.obs[:], self.action[:], self.next_obs[:] = arrays["obs"], arrays["action"], arrays["next_obs"]
        self.ended[:], self.count = arrays["ended"], count


class Collector:
    """Steps several environments side by side, with one call of the policy for all of them.

    Each begins its next episode when it is next stepped, so that no row leads from one episode into another.
    """

    def __init__(
        self, envs: Sequence[Any], rollouts: Rollouts, spec: Spec, normalizer: Normalizer, *, seed: int
    ) -> None:
        self.rollouts, self.spec, self.normalizer, self.seed = rollouts, spec, normalizer, seed
        self.rng = np.random.default_rng([seed, 3])
        seeds = np.random.SeedSequence([seed, 4]).generate_state(len(envs))
        self.stages = [Stage(env, int(each)) for env, each in zip(envs, seeds, strict=True)]
        self.stride = len(self.stages)
        """Environment steps of one `step`."""

    def step(self, policy: Callable[[], Policy]) -> None:
        """One step of each environment."""
        obs = np.stack([stage.begin() for stage in self.stages])
        actions = policy()(obs, deterministic=False, rng=self.rng)
        steps = [stage.step(action) for stage, action in zip(self.stages, actions, strict=True)]
        next_obs = np.stack([step.next_obs for step in steps])
        # A time limit ends the recording, not the task: only `terminated` leads to the absorbing state.
        terminated = np.array([step.terminated for step in steps])
        truncated = np.array([step.truncated for step in steps])
        row = (self.normalizer(obs), self.spec.encode(actions), self.normalizer(next_obs))
        self.rollouts.add(*row, terminated=terminated, truncated=truncated)

    def save(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and facts, from which `restore` goes on."""
        arrays, count = self.rollouts.save()
        starts = []
        for index, stage in enumerate(self.stages):
            more, start = stage.save()
            arrays |= {f"{index}/{name}": array for name, array in more.items()}
            starts.append(start)
        return arrays, {"rng": self.rng.bit_generator.state, "count": count, "starts": starts}

    def restore(self, arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> None:
        """Goes on where another one was saved; says so where an environment cannot be brought there."""
        self.rng.bit_generator.state = facts["rng"]
        self.rollouts.restore(arrays, facts["count"])
        for index, (stage, start) in enumerate(zip(self.stages, facts["starts"], strict=True)):
            mine = {name: arrays[f"{index}/{name}"] for name in ("obs", "actions") if f"{index}/{name}" in arrays}
            if not stage.restore(mine, start, [self.seed, facts["count"], index]):
                self.rollouts.cut(index)
