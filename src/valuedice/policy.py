"""A policy in plain numpy, saved as one safetensors file that contains everything it needs.

Its tensors are `layer{i}.kernel`, `layer{i}.bias`, `obs_mean`, `obs_std` and, for continuous actions, `action_low`
and `action_high`. Its metadata has one entry, named after the format, with JSON: the kind of policy, what its
hidden units do (relu or tanh), the number of layers, the clip of the observations and the first discrete action.
Kinds:

- `categorical`: the output holds the logits of the actions;
- `tanh-gaussian`: a location and a raw log-std for each dimension; the mean action is tanh(location);
- `clipped-gaussian`: likewise, but the mean action is the location, clipped to [-1, 1].
"""

from __future__ import annotations

import json
import os
import textwrap
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save

from valuedice.errors import InputError
from valuedice.system.files import write_whole
from valuedice.types import LOG_STD_MAX, LOG_STD_MIN, SQUASHED, Bounds, Form, Normalizer, Spec

FORMAT, FIRST_FORMAT = "valuedice-policy-2", "valuedice-policy-1"
"""All policies of the first format have ReLU units."""
KINDS: dict[Bounds, str] = {"tanh": "tanh-gaussian", "clip": "clipped-gaussian"}
"""Kinds of policies for continuous actions, by what bounds them."""
FARTHEST_ACTION = 2**31
"""Largest absolute number of the first discrete action."""


@dataclass(frozen=True)
class Policy:
    """Maps observations to actions, both in the units of the environment."""

    layers: tuple[tuple[np.ndarray, np.ndarray], ...]
    """Kernel and bias of each layer."""
    normalizer: Normalizer
    spec: Spec
    form: Form = SQUASHED

    def __call__(
        self,
        obs: np.ndarray,
        deterministic: bool = True,
        rng: np.random.Generator | None = None,
    ) -> np.ndarray:
        """The mean (or most likely) action for one observation or a batch; a sample if not `deterministic`."""
        obs = np.asarray(obs)
        if obs.shape[-1:] != (self.spec.obs_size,) or obs.ndim > 2:
            raise InputError(
                f"the policy takes one observation of {self.spec.obs_size} features, or a batch; got {obs.shape}"
            )
        output = self.forward(obs)
        if deterministic:
            return self.spec.decode(output.argmax(-1) if self.spec.discrete else self.mean(output))
        rng = rng or np.random.default_rng()
        if self.spec.discrete:
            # The largest of logits plus Gumbel noise is a sample of the softmax.
            return self.spec.decode((output + rng.gumbel(size=output.shape)).argmax(-1))
        location, raw = np.split(output, 2, axis=-1)
        log_std = LOG_STD_MIN + 0.5 * (LOG_STD_MAX - LOG_STD_MIN) * (np.tanh(raw) + 1)
        return self.spec.decode(self.bounded(location + np.exp(log_std) * rng.standard_normal(location.shape)))

    def forward(self, obs: np.ndarray) -> np.ndarray:
        """The network's output: logits, or location and raw log-std side by side."""
        x = self.normalizer(obs)
        for kernel, bias in self.layers[:-1]:
            x = x @ kernel + bias
            x = np.tanh(x) if self.form.units == "tanh" else np.maximum(x, 0)
        kernel, bias = self.layers[-1]
        return x @ kernel + bias

    def mean(self, output: np.ndarray) -> np.ndarray:
        """The mean action in [-1, 1]."""
        return self.bounded(output[..., : self.spec.action_size])

    def bounded(self, action: np.ndarray) -> np.ndarray:
        """Continuous actions inside [-1, 1]."""
        return np.tanh(action) if self.form.bounds == "tanh" else np.clip(action, -1, 1)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the file whole or not at all."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, self.to_bytes())

    def to_bytes(self) -> bytes:
        """The content of the policy file."""
        tensors = {"obs_mean": self.normalizer.mean, "obs_std": self.normalizer.std}
        for index, (kernel, bias) in enumerate(self.layers):
            tensors |= {f"layer{index}.kernel": kernel, f"layer{index}.bias": bias}
        if not self.spec.discrete:
            tensors |= {
                "action_low": np.asarray(self.spec.low, np.float32),
                "action_high": np.asarray(self.spec.high, np.float32),
            }
        about = {
            "kind": "categorical" if self.spec.discrete else KINDS[self.form.bounds],
            "units": self.form.units,
            "layers": len(self.layers),
            "obs_clip": self.normalizer.clip,
            "first_action": self.spec.first_action,
        }
        # A single entry, because safetensors writes several in random order: equal policies give equal files.
        metadata = {FORMAT: json.dumps(about)}
        return save({name: np.ascontiguousarray(t, np.float32) for name, t in tensors.items()}, metadata)


def load_policy(path: str | os.PathLike[str]) -> Policy:
    """Loads a policy file, or the policy of a run folder."""
    path = Path(path)
    # Not the methods of Path, which raise on a name that is too long.
    if os.path.isdir(path):
        path = path / "policy.safetensors"
    if not os.path.isfile(path):
        raise InputError(f"no policy at {path}; give a policy.safetensors file or a run folder that has one")
    try:
        with safe_open(path, framework="np") as file:
            metadata = file.metadata() or {}
            # Tensors of other files may have a type that numpy lacks.
            form = next((name for name in (FORMAT, FIRST_FORMAT) if name in metadata), None)
            names = () if form is None else file.keys()
            tensors = {name: file.get_tensor(name) for name in names}
    except Exception as error:  # damaged headers raise many kinds of errors in safetensors and numpy
        raise InputError(
            f"{path} is not a readable safetensors file ({_reason(error)}); save the policy again"
        ) from None
    if form is None:
        other = next((name for name in metadata if name.startswith("valuedice-policy-")), "unknown")[:80]
        raise InputError(
            f"{path} has format {other!r}; this version reads {FORMAT!r}: "
            "use the version of valuedice that wrote it, or save the policy again"
        )
    try:
        about = json.loads(metadata[form])
        return _from_tensors(tensors, about | {"units": "relu"} if form == FIRST_FORMAT else about)
    except Exception as error:  # the description may be any JSON
        raise InputError(f"{path} is damaged ({_reason(error)}); save the policy again") from None


def _reason(error: Exception) -> str:
    """The message of an error, on one line."""
    text = f"{error} is missing" if isinstance(error, KeyError) else str(error)
    return textwrap.shorten(text, 200, placeholder="…") or type(error).__name__


def _from_tensors(tensors: dict[str, np.ndarray], about: dict[str, Any]) -> Policy:
    """The policy in a file's tensors and description; raises an error if they do not fit together."""
    layers = tuple(
        (tensors[f"layer{index}.kernel"], tensors[f"layer{index}.bias"]) for index in range(about["layers"])
    )
    bounds: dict[str, Bounds] = {"categorical": SQUASHED.bounds, **{kind: name for name, kind in KINDS.items()}}
    if about["kind"] not in bounds or about["units"] not in ("relu", "tanh"):
        raise ValueError("its kind is unknown")
    form, discrete = Form(about["units"], bounds[about["kind"]]), about["kind"] == "categorical"
    outputs = layers[-1][1].size
    spec = Spec(
        obs_size=tensors["obs_mean"].size,
        action_size=outputs if discrete else outputs // 2,
        discrete=discrete,
        low=() if discrete else tuple(tensors["action_low"].tolist()),
        high=() if discrete else tuple(tensors["action_high"].tolist()),
        first_action=about["first_action"],
    )
    sizes = [spec.obs_size, *[bias.size for _, bias in layers]]
    bounded = 0 if discrete else spec.action_size
    if (
        [kernel.shape for kernel, _ in layers] != list(pairwise(sizes))
        or {t.ndim for name, t in tensors.items() if not name.endswith(".kernel")} != {1}
        or tensors["obs_std"].shape != tensors["obs_mean"].shape
        or min(sizes) < 1
        or [outputs, len(spec.low), len(spec.high)] != [spec.action_size + bounded, bounded, bounded]
    ):
        raise ValueError("its shapes do not fit together")
    if not all(t.dtype == np.float32 and np.isfinite(t).all() for t in tensors.values()):
        raise ValueError("it contains NaN, infinity, or a type other than float32")
    with np.errstate(over="ignore"):
        spans = np.subtract(spec.high, spec.low, dtype=np.float32)
    normalizer = Normalizer(tensors["obs_mean"], tensors["obs_std"], float(about["obs_clip"]))
    if not ((spans >= 0) & (spans < np.inf)).all() or not (normalizer.std > 0).all() or not normalizer.clip > 0:
        raise ValueError("a bound, a standard deviation or the clip is out of range")
    if type(spec.first_action) is not int or abs(spec.first_action) > FARTHEST_ACTION:
        raise ValueError("first_action is not an integer, or too large")
    return Policy(layers, normalizer, spec, form)
