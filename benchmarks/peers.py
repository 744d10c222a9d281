# pyright: reportMissingImports=false
"""Behavioural cloning by other libraries, in a process of its own: started by `time_to_result.py`.

Runs in a Python that has `imitation` or `d3rlpy`. Neither can be installed beside valuedice or the other, because
each needs another, older Gymnasium:

    python -m venv A && A/bin/pip install imitation==1.0.1
    python -m venv B && B/bin/pip install d3rlpy==2.8.1

For each line that it reads, it trains for `EVERY` more updates, writes the policy to a file, and answers
with a line of JSON. Nothing is evaluated here.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

EVERY = 1_000
"""Updates between two answers."""


class Clone(NamedTuple):
    """A policy as the other library holds it."""

    network: list[Any]
    """The linear layers, in order."""
    activation: str
    squashed: bool
    """Whether the last layer ends in tanh."""
    mean: np.ndarray
    std: np.ndarray
    """Observations are shifted and scaled by these."""
    act: Callable[[np.ndarray], np.ndarray]
    """The library's own deterministic actions."""


def imitation(rows: dict[str, np.ndarray], seed: int, normalised: bool) -> Iterator[Clone]:
    """imitation's defaults: likelihood of a Gaussian, two tanh layers of 32 units, batches of 32 rows. Its
    normaliser is a features extractor with running mean and variance."""
    import torch
    from gymnasium.spaces import Box
    from imitation.algorithms import bc
    from imitation.data.types import Transitions
    from imitation.policies.base import FeedForward32Policy, NormalizeFeaturesExtractor
    from imitation.util.logger import configure
    from stable_baselines3.common.torch_layers import FlattenExtractor

    torch.manual_seed(seed)
    observations = Box(-np.inf, np.inf, rows["observations"].shape[1:], np.float32)
    actions = Box(rows["low"], rows["high"], dtype=np.float32)
    # Cloning looks at observations and actions only.
    infos, ends = np.array([{} for _ in rows["rewards"]]), np.zeros(len(rows["rewards"]), bool)
    shown = Transitions(rows["observations"], rows["actions"], infos, rows["next_observations"], ends)
    extractor = NormalizeFeaturesExtractor if normalised else FlattenExtractor
    # The policy that BC makes if none is given, but for the extractor.
    policy = FeedForward32Policy(observations, actions, lambda _: 1.0, features_extractor_class=extractor)
    learner = bc.BC(
        observation_space=observations,
        action_space=actions,
        rng=np.random.default_rng(seed),
        policy=policy,
        demonstrations=shown,
        device="cpu",
        custom_logger=configure(format_strs=[]),
    )

    def act(obs: np.ndarray) -> np.ndarray:
        chosen = policy.predict(obs, deterministic=True)[0]
        # `predict` leaves training mode, in which alone the normaliser learns.
        policy.set_training_mode(True)
        return chosen

    while True:
        learner.train(n_batches=EVERY, progress_bar=False)
        mean, std = np.zeros(observations.shape), np.ones(observations.shape)
        if normalised:
            norm = policy.features_extractor.normalize
            mean, std = norm.running_mean.numpy(), torch.sqrt(norm.running_var + norm.eps).numpy()
        layers = [*linear_layers(policy.mlp_extractor.policy_net), policy.action_net]
        yield Clone(layers, "tanh", False, mean, std, act)


def d3rlpy(rows: dict[str, np.ndarray], seed: int, normalised: bool) -> Iterator[Clone]:
    """d3rlpy's defaults: squared error, two ReLU layers of 256 units, batches of 100 rows."""
    import d3rlpy as library
    from d3rlpy.logging import NoopAdapterFactory
    from d3rlpy.preprocessing import StandardObservationScaler

    library.seed(seed)
    # Without an end, d3rlpy would leave out the last row; cloning does not look at it otherwise.
    ends = np.arange(len(rows["rewards"])) == len(rows["rewards"]) - 1
    dataset = library.dataset.MDPDataset(rows["observations"], rows["actions"], rows["rewards"], ends)
    scaler = StandardObservationScaler() if normalised else None
    learner = library.algos.BCConfig(observation_scaler=scaler).create(device=False)
    options: dict[str, Any] = {"logger_adapter": NoopAdapterFactory(), "show_progress": False}
    for _ in learner.fitter(dataset, n_steps=sys.maxsize, n_steps_per_epoch=EVERY, **options):
        mean, std = np.zeros(rows["observations"].shape[1:]), np.ones(rows["observations"].shape[1:])
        if scaler is not None:
            mean, std = np.asarray(scaler.mean), np.asarray(scaler.std) + scaler.eps
        yield Clone(linear_layers(learner.impl.policy), "relu", True, mean, std, learner.predict)


def linear_layers(module: Any) -> list[Any]:
    """The linear layers of a network of torch, in order."""
    from torch.nn import Linear

    return [part for part in module.modules() if isinstance(part, Linear)]


def save(path: Path, clone: Clone, observations: np.ndarray) -> None:
    """Writes weights, normaliser, and the library's own actions for the demonstrated observations."""
    arrays: dict[str, Any] = {"mean": clone.mean, "std": clone.std, "own_actions": clone.act(observations)}
    for index, layer in enumerate(clone.network):
        arrays[f"kernel{index}"] = layer.weight.detach().numpy().T
        arrays[f"bias{index}"] = layer.bias.detach().numpy()
    np.savez(path, **arrays)


LIBRARIES = {"imitation": imitation, "d3rlpy": d3rlpy}
PACKAGES = {
    "imitation": ("imitation", "stable-baselines3", "torch", "numpy", "gymnasium"),
    "d3rlpy": ("d3rlpy", "torch", "numpy", "gymnasium"),
}


def main() -> None:
    """`peers.py LIBRARY default|normalised SEED DEMOS.npz POLICY.npz`."""
    library, setting, seed, demos, policy = sys.argv[1:]
    # Libraries print to stdout too, but only answers may arrive there.
    answers, sys.stdout = sys.stdout, sys.stderr
    with np.load(demos) as file:
        rows = dict(file)
    clones = LIBRARIES[library](rows, int(seed), setting == "normalised")
    versions = {name: version(name) for name in PACKAGES[library]}
    apart = 0.0
    for updates, _ in enumerate(sys.stdin, start=1):
        clone = next(clones)
        seconds = time.process_time()
        save(Path(policy), clone, rows["observations"])
        answer = {"updates": updates * EVERY, "seconds": seconds - apart, "versions": versions}
        # Writing the policy is the benchmark's work.
        apart += time.process_time() - seconds
        answer |= {"activation": clone.activation, "squashed": clone.squashed}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
