"""Where an imitator of HalfCheetah-v5 can and cannot run: `python benchmarks/from_states.py POLICY DEMOS OUT.json`.

It is put into states of the demonstrations (an observation holds all of the state but the place) and acts for 300
steps: from the middle of each episode, from its tenth step, and from its start.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

import valuedice as vd

STEPS = 300
FROM = {"step 500": 500, "step 10": 10, "the start": 0}


def mean_reward(policy: vd.Policy, env: Any, obs: np.ndarray) -> float:
    """Of a step, over the steps that follow this observation."""
    env.reset(seed=0)
    positions = env.model.nq - 1
    env.set_state(np.append(0.0, obs[:positions]), obs[positions:])
    total, state = 0.0, obs
    for _ in range(STEPS):
        state, reward, *_ = env.step(policy(state))
        total += float(reward)
    return total / STEPS


def main(policy_path: str, demos_ref: str, out: str) -> None:
    """One number for each episode and place."""
    policy, demos = vd.load_policy(policy_path), vd.load_demos(demos_ref)
    env: Any = gym.make("HalfCheetah-v5").unwrapped
    found = {
        name: [
            mean_reward(policy, env, episode.observations[step].astype(np.float64)) for episode in demos.episodes
        ]
        for name, step in FROM.items()
    }
    rewards = [episode.rewards for episode in demos.episodes if episode.rewards is not None]
    found["the expert"] = [float(np.mean(reward)) for reward in rewards]
    Path(out).write_text(json.dumps({name: np.round(each, 3).tolist() for name, each in found.items()}, indent=1))
    for name, each in found.items():
        print(
            f"{name:12} mean {np.mean(each):.2f} a step; below 0.5: {np.sum(np.array(each) < 0.5)} of {len(each)}"
        )


if __name__ == "__main__":
    main(*sys.argv[1:4])
