"""The policy artefact: it acts as the networks do, survives the disk, and needs nothing but numpy."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_allclose, assert_array_equal
from safetensors import safe_open
from safetensors.numpy import save_file

from valuedice import networks
from valuedice import policy as policy_module
from valuedice.errors import InputError
from valuedice.networks import Params, actor_init, categorical_policy, gaussian_policy
from valuedice.policy import FORMAT, Policy, load_policy
from valuedice.types import Normalizer, Spec

BOX = Spec(obs_size=3, action_size=2, low=(-1.0, 0.5), high=(3.0, 0.75))
FOUR = Spec(obs_size=3, action_size=4, discrete=True, first_action=5)
both = pytest.mark.parametrize("spec", [BOX, FOUR], ids=["continuous", "discrete"])
OBSERVATIONS = np.random.default_rng(1).normal(size=(50, 3)) * [1, 10, 0.1] + [0, 5, 2]


def make(spec: Spec) -> tuple[Policy, Params]:
    """A random policy, in numpy and in JAX."""
    rng = np.random.default_rng(0)
    params = actor_init(jax.random.key(0), spec.obs_size, spec.action_size, (32, 16), spec.discrete)
    params = [layer._replace(bias=jnp.asarray(rng.normal(size=layer.kernel.shape[1]) / 4)) for layer in params]
    layers = tuple((np.array(layer.kernel), np.array(layer.bias)) for layer in params)
    normalizer = Normalizer(np.array([0, 5, 2], np.float32), np.array([1, 10, 0.1], np.float32), clip=2.0)
    return Policy(layers, normalizer, spec), params


def seen(policy: Policy) -> np.ndarray:
    """The observations as the networks take them, with the absorbing mark."""
    normalised = np.clip((OBSERVATIONS - policy.normalizer.mean) / policy.normalizer.std, -2, 2)
    return np.column_stack([normalised, np.zeros(len(normalised))]).astype(np.float32)


def test_the_mean_action_is_that_of_the_jax_network_in_the_environments_units():
    policy, params = make(BOX)
    mode = np.array(jax.vmap(lambda row: gaussian_policy(params, row).mode())(seen(policy)))
    expected = np.array([-1, 0.5]) + (mode + 1) / 2 * np.array([4, 0.25])
    actions = policy(OBSERVATIONS)
    assert actions.shape == (50, 2)
    assert_allclose(actions, expected, atol=1e-5)
    assert np.ptp(actions[:, 0]) > 0.5  # so that something was compared


def test_the_most_likely_discrete_action_is_that_of_the_jax_network():
    policy, params = make(FOUR)
    probs = np.array(jax.vmap(lambda row: categorical_policy(params, row).probs())(seen(policy)))
    actions = policy(OBSERVATIONS)
    assert actions.shape == (50,)
    assert_array_equal(actions, 5 + probs.argmax(1))
    logits = policy.forward(OBSERVATIONS)
    own = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    assert_allclose(own, probs, atol=1e-5)


@both
def test_one_observation_gives_what_it_gives_in_a_batch(spec):
    policy, _ = make(spec)
    batch = policy(OBSERVATIONS)
    for observation, action in zip(OBSERVATIONS, batch, strict=True):
        alone = policy(observation)
        assert alone.shape == action.shape
        assert_allclose(alone, action, rtol=1e-5)


def test_sampled_actions_are_a_gaussian_squashed_by_tanh():
    policy, params = make(BOX)
    distribution = gaussian_policy(params, jnp.asarray(seen(policy)[0]))
    location, std = np.array(distribution.location), np.exp(np.array(distribution.log_std))
    many = policy(np.tile(OBSERVATIONS[0], (20_000, 1)), deterministic=False, rng=np.random.default_rng(0))
    u = np.arctanh(np.clip(2 * (many - [-1, 0.5]) / [4, 0.25] - 1, -1 + 1e-7, 1 - 1e-7))
    assert_allclose(u.mean(0), location, atol=5 * std.max() / np.sqrt(20_000))
    assert_allclose(u.std(0), std, rtol=0.03)


def test_sampled_discrete_actions_come_with_their_probabilities():
    policy, params = make(FOUR)
    probs = np.array(categorical_policy(params, jnp.asarray(seen(policy)[0])).probs())
    many = policy(np.tile(OBSERVATIONS[0], (20_000, 1)), deterministic=False, rng=np.random.default_rng(0))
    assert_allclose(np.bincount(many - 5, minlength=4) / 20_000, probs, atol=5 * 0.5 / np.sqrt(20_000))


def test_samples_repeat_with_the_generator():
    policy, _ = make(BOX)
    first, again = (policy(OBSERVATIONS, False, np.random.default_rng(3)) for _ in range(2))
    assert_array_equal(first, again)
    assert not np.array_equal(first, policy(OBSERVATIONS, False, np.random.default_rng(4)))


def test_actions_stay_within_asymmetric_bounds_however_large_the_output():
    policy, _ = make(BOX)
    kernel, bias = policy.layers[-1]
    loud = replace(policy, layers=(*policy.layers[:-1], (kernel * 1e4, bias)))
    for actions in (loud(OBSERVATIONS), loud(OBSERVATIONS, deterministic=False)):
        assert (actions >= np.array([-1, 0.5], np.float32)).all()
        assert (actions <= np.array([3, 0.75], np.float32)).all()
    assert loud(OBSERVATIONS)[:, 0].max() == 3


def test_both_kinds_of_network_bound_the_deviation_alike():
    assert policy_module.LOG_STD_MIN == networks.LOG_STD_MIN
    assert policy_module.LOG_STD_MAX == networks.LOG_STD_MAX


@pytest.mark.parametrize("shape", [(2,), (5, 4), (1, 5, 3), ()])
def test_observations_of_another_shape_are_refused_with_both(shape):
    policy, _ = make(BOX)
    with pytest.raises(InputError, match="3 features") as caught:
        policy(np.zeros(shape))
    assert str(shape) in str(caught.value)


@both
def test_a_policy_survives_a_round_trip_bit_for_bit(spec, tmp_path):
    policy, _ = make(spec)
    policy.save(tmp_path / "new" / "policy.safetensors")
    for back in (load_policy(tmp_path / "new"), load_policy(str(tmp_path / "new" / "policy.safetensors"))):
        assert back.spec == spec
        for ours, theirs in zip(policy.layers, back.layers, strict=True):
            assert_array_equal(ours[0], theirs[0])
            assert_array_equal(ours[1], theirs[1])
        assert_array_equal(policy(OBSERVATIONS), back(OBSERVATIONS))
        before, after = (p(OBSERVATIONS, False, np.random.default_rng(0)) for p in (policy, back))
        assert_array_equal(before, after)
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["policy.safetensors"]


def test_bounds_that_float32_cannot_hold_give_the_same_actions_after_loading(tmp_path):
    policy, _ = make(replace(BOX, low=(-0.1, -0.3), high=(0.7, 0.4)))
    policy.save(tmp_path / "p")
    assert_array_equal(load_policy(tmp_path / "p")(OBSERVATIONS), policy(OBSERVATIONS))


def test_loading_and_calling_a_policy_imports_neither_jax_nor_gymnasium(tmp_path):
    make(BOX)[0].save(tmp_path / "policy.safetensors")
    script = """
import sys, numpy as np, valuedice as vd
policy = vd.load_policy(sys.argv[1])
assert policy(np.zeros(3)).shape == (2,)
assert policy(np.zeros((4, 3)), deterministic=False).shape == (4, 2)
loaded = {name.partition(".")[0] for name in sys.modules}
assert not loaded & {"jax", "jaxlib", "optax", "gymnasium", "mujoco", "matplotlib"}, loaded
"""
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True)


def refused(path: Path) -> str:
    """The message with which a file is refused, which must be one line that names it."""
    with pytest.raises(InputError) as caught:
        load_policy(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def saved(tmp_path) -> Path:
    make(BOX)[0].save(tmp_path / "policy.safetensors")
    return tmp_path / "policy.safetensors"


def rewrite(path: Path, about: dict[str, Any] | None = None, **changes: Any) -> None:
    """Changes tensors (None removes one), metadata (`format`) or the description inside it (`about`)."""
    with safe_open(path, framework="np") as file:
        metadata = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    description = json.loads(metadata[FORMAT]) | (about or {})
    metadata = {changes.pop("format", FORMAT): json.dumps(description)}
    tensors |= {name.replace("_dot_", "."): array for name, array in changes.items()}
    save_file({name: array for name, array in tensors.items() if array is not None}, path, metadata)


def test_a_missing_policy_and_a_folder_without_one_are_refused(tmp_path):
    assert "no policy at" in refused(tmp_path / "nothing")
    assert "no policy at" in refused(tmp_path)


@pytest.mark.parametrize("content", [b"", b"text", b"\x80\x05pickle", b"\xff" * 100])
def test_other_kinds_of_file_are_refused(tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    assert "no readable safetensors file" in refused(tmp_path / "file")


def test_every_truncation_is_refused(saved):
    content = saved.read_bytes()
    for size in range(0, len(content), 97):
        saved.write_bytes(content[:size])
        assert "no readable safetensors file" in refused(saved)


def test_damaged_bytes_never_raise_anything_but_an_input_error(saved):
    content = saved.read_bytes()
    random = np.random.default_rng(0)
    for _ in range(500):
        damaged = bytearray(content)
        damaged[random.integers(1500)] = random.integers(256)  # the header is there
        saved.write_bytes(damaged)
        with contextlib.suppress(InputError):
            load_policy(saved)


def test_somebody_elses_safetensors_are_refused_even_with_types_that_numpy_lacks(tmp_path):
    header = json.dumps({"weight": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}).encode()
    (tmp_path / "model").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    assert "format 'unknown'" in refused(tmp_path / "model")


def test_a_newer_format_is_refused_with_both_versions(saved):
    rewrite(saved, format="valuedice-policy-2")
    message = refused(saved)
    assert "'valuedice-policy-2'" in message
    assert "'valuedice-policy-1'" in message


@pytest.mark.parametrize(
    "changes",
    [
        {"layer1_dot_kernel": None},
        {"obs_mean": None},
        {"action_low": None},
        {"layer1_dot_kernel": np.zeros((32, 17), np.float32)},
        {"layer2_dot_bias": np.zeros((1, 4), np.float32)},
        {"obs_std": np.ones(2, np.float32)},
        {"action_high": np.ones(1, np.float32)},
        {"about": {"layers": 0}},
        {"about": {"layers": 4}},
        {"about": {"layers": "three"}},
        {"about": {"kind": "beta"}},
        {"about": {"obs_clip": "wide"}},
    ],
)
def test_a_file_whose_parts_do_not_fit_is_refused(saved, changes):
    rewrite(saved, **changes)
    assert "damaged" in refused(saved)


def test_an_odd_number_of_gaussian_outputs_is_refused(saved):
    rewrite(saved, layer2_dot_kernel=np.zeros((16, 5), np.float32), layer2_dot_bias=np.zeros(5, np.float32))
    assert "damaged" in refused(saved)


bounds = st.tuples(st.floats(-100, 100, width=32), st.floats(0.125, 100, width=32))


@given(st.lists(bounds, min_size=1, max_size=3), st.data())
def test_decoding_undoes_encoding_of_continuous_actions(limits, data):
    low, high = [start for start, _ in limits], [start + span for start, span in limits]
    spec = Spec(1, len(limits), low=tuple(low), high=tuple(high))
    unit = data.draw(hnp.arrays(np.float32, (4, len(limits)), elements=st.floats(0, 1, width=32)))
    actions = (low + unit * (np.array(high) - low)).astype(np.float32)
    encoded = spec.encode(actions)
    assert encoded.dtype == np.float32
    assert np.abs(encoded).max() <= 1 + 1e-3  # where the bounds are large and near each other, float32 is coarse
    assert_allclose(spec.decode(encoded), actions, atol=1e-4)
    assert_array_equal(spec.decode(np.full(len(limits), -1.0)), np.array(low, np.float32))
    assert_array_equal(spec.decode(np.full(len(limits), 1.0)), np.array(high, np.float32))


@given(st.integers(1, 6), st.integers(-5, 5), st.data())
def test_decoding_undoes_encoding_of_discrete_actions(count, first, data):
    spec = Spec(1, count, discrete=True, first_action=first)
    actions = data.draw(hnp.arrays(np.int64, 5, elements=st.integers(first, first + count - 1)))
    encoded = spec.encode(actions)
    assert_array_equal(encoded.sum(1), 1)
    assert_array_equal(spec.decode(encoded.argmax(1)), actions)


def test_bounds_that_coincide_are_encoded_without_dividing_by_zero():
    spec = Spec(1, 2, low=(0.0, 3.0), high=(1.0, 3.0))
    encoded = spec.encode(np.array([[0.5, 3.0]]))
    assert_array_equal(encoded, [[0, -1]])
    assert_array_equal(spec.decode(encoded), [[0.5, 3]])
