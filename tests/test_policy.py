"""The numpy policy: it acts as the networks do, and survives the disk. Hostile files are in faults/."""

from __future__ import annotations

import json
import math
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

from valuedice.errors import InputError
from valuedice.networks import Dense, PolicyNet, actor_init, categorical_policy, gaussian_policy
from valuedice.policy import FIRST_FORMAT, FORMAT, Policy, load_policy
from valuedice.types import SQUASHED, Form, Normalizer, Spec

BOX = Spec(obs_size=3, action_size=2, low=(-1.0, 0.5), high=(3.0, 0.75))
FOUR = Spec(obs_size=3, action_size=4, discrete=True, first_action=5)
ROUNDED = replace(BOX, low=(-0.1, -0.3), high=(0.7, 0.4))  # float32 holds none of these bounds
CLIPPED = Form("tanh", "clip")
OBSERVATIONS = np.random.default_rng(1).normal(size=(50, 3)) * [1, 10, 0.1] + [0, 5, 2]
MANY = np.tile(OBSERVATIONS[0], (20_000, 1))


FORMS = pytest.mark.parametrize("form", [SQUASHED, CLIPPED], ids=["squashed", "clipped"])


def make(spec: Spec, form: Form = SQUASHED) -> tuple[Policy, PolicyNet]:
    """A random policy, in numpy and in JAX."""
    rng = np.random.default_rng(0)
    actor = actor_init(jax.random.key(0), spec, (32, 16), form)
    biases = [jnp.asarray(rng.normal(size=layer.kernel.shape[1]) / 4) for layer in actor.layers]
    actor = replace(
        actor, layers=[Dense(part.kernel, bias) for part, bias in zip(actor.layers, biases, strict=True)]
    )
    layers = tuple((np.array(layer.kernel), np.array(layer.bias)) for layer in actor.layers)
    normalizer = Normalizer(np.array([0, 5, 2], np.float32), np.array([1, 10, 0.1], np.float32), clip=2.0)
    return Policy(layers, normalizer, spec, actor.form), actor


def seen(policy: Policy) -> np.ndarray:
    """The observations as the networks take them, with the absorbing mark."""
    normalised = np.clip((OBSERVATIONS - policy.normalizer.mean) / policy.normalizer.std, -2, 2)
    return np.column_stack([normalised, np.zeros(len(normalised))]).astype(np.float32)


@FORMS
def test_the_mean_action_is_that_of_the_jax_network_in_the_environments_units(form):
    policy, actor = make(BOX, form)
    mode = np.array(jax.vmap(lambda row: gaussian_policy(actor, row).mode())(seen(policy)))
    actions = policy(OBSERVATIONS)
    assert actions.shape == (50, 2)
    assert_allclose(actions, np.array([-1, 0.5]) + (mode + 1) / 2 * np.array([4, 0.25]), atol=1e-5)
    assert np.ptp(actions[:, 0]) > 0.5  # so that something was compared


def test_the_most_likely_discrete_action_is_that_of_the_jax_network():
    policy, actor = make(FOUR)
    probs = np.array(jax.vmap(lambda row: categorical_policy(actor, row).probs())(seen(policy)))
    assert_array_equal(policy(OBSERVATIONS), 5 + probs.argmax(1))
    own = np.exp(policy.forward(OBSERVATIONS))
    assert_allclose(own / own.sum(1, keepdims=True), probs, atol=1e-5)


def test_sampled_actions_are_a_gaussian_squashed_by_tanh():
    policy, actor = make(BOX)
    distribution = gaussian_policy(actor, jnp.asarray(seen(policy)[0]))
    location, std = np.array(distribution.location), np.exp(np.array(distribution.log_std))
    many = policy(MANY, deterministic=False, rng=np.random.default_rng(0))
    u = np.arctanh(np.clip(2 * (many - [-1, 0.5]) / [4, 0.25] - 1, -1 + 1e-7, 1 - 1e-7))
    assert_allclose(u.mean(0), location, atol=5 * std.max() / np.sqrt(len(MANY)))
    assert_allclose(u.std(0), std, rtol=0.03)


def test_sampled_actions_are_a_gaussian_clipped_at_the_bounds():
    policy, actor = make(BOX, CLIPPED)
    distribution = gaussian_policy(actor, jnp.asarray(seen(policy)[0]))
    location, std = np.array(distribution.location), np.exp(np.array(distribution.log_std))
    many = 2 * (policy(MANY, deterministic=False, rng=np.random.default_rng(0)) - [-1, 0.5]) / [4, 0.25] - 1
    # The share below any number inside the bounds is that of the Gaussian.
    for number in (-0.999, -0.5, 0.0, 0.5, 0.999):
        expected = [
            0.5 * (1 + math.erf((number - at) / (s * math.sqrt(2)))) for at, s in zip(location, std, strict=True)
        ]
        assert_allclose((many < number).mean(0), expected, atol=5 * 0.5 / np.sqrt(len(MANY)))


def test_sampled_discrete_actions_come_with_their_probabilities():
    policy, actor = make(FOUR)
    probs = np.array(categorical_policy(actor, jnp.asarray(seen(policy)[0])).probs())
    many = policy(MANY, deterministic=False, rng=np.random.default_rng(0))
    assert_allclose(np.bincount(many - 5, minlength=4) / len(MANY), probs, atol=5 * 0.5 / np.sqrt(len(MANY)))


@FORMS
@pytest.mark.parametrize("spec", [BOX, FOUR, ROUNDED], ids=["continuous", "discrete", "rounded"])
def test_a_policy_survives_a_round_trip_and_acts_alike_alone_and_in_a_batch(spec, form, tmp_path):
    policy, _ = make(spec, form)
    policy.save(tmp_path / "new" / "policy.safetensors")
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["policy.safetensors"]
    for back in (load_policy(tmp_path / "new"), load_policy(str(tmp_path / "new" / "policy.safetensors"))):
        assert spec == ROUNDED or back.spec == spec
        assert back.form == policy.form
        assert back.to_bytes() == policy.to_bytes()
        assert_array_equal(policy(OBSERVATIONS), back(OBSERVATIONS))
        sample, again, other = (
            one(OBSERVATIONS, False, np.random.default_rng(seed))
            for one, seed in ((policy, 0), (back, 0), (back, 1))
        )
        assert_array_equal(sample, again)
        assert not np.array_equal(sample, other)
    for observation, action in zip(OBSERVATIONS, policy(OBSERVATIONS), strict=True):
        assert policy(observation).shape == action.shape
        assert_allclose(policy(observation), action, rtol=1e-5)


@FORMS
def test_actions_stay_within_asymmetric_bounds_however_large_the_output(form):
    policy, _ = make(BOX, form)
    kernel, bias = policy.layers[-1]
    loud = replace(policy, layers=(*policy.layers[:-1], (kernel * 1e4, bias)))
    for actions in (loud(OBSERVATIONS), loud(OBSERVATIONS, deterministic=False)):
        assert (actions >= np.array([-1, 0.5], np.float32)).all()
        assert (actions <= np.array([3, 0.75], np.float32)).all()
    assert loud(OBSERVATIONS)[:, 0].max() == 3


@pytest.mark.parametrize("shape", [(2,), (5, 4), (1, 5, 3), ()])
def test_observations_of_another_shape_are_refused_with_both(shape):
    with pytest.raises(InputError, match="3 features") as caught:
        make(BOX)[0](np.zeros(shape))
    assert str(shape) in str(caught.value)


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


def rewrite(path: Path, form: str = FORMAT, **changes: Any) -> None:
    """Changes tensors (None removes one) or the name of the format."""
    with safe_open(path, framework="np") as file:
        description = file.metadata()[FORMAT]
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    tensors |= {name.replace("_dot_", "."): array for name, array in changes.items()}
    save_file({name: array for name, array in tensors.items() if array is not None}, path, {form: description})


def test_a_missing_policy_and_a_folder_without_one_are_refused(tmp_path):
    assert "no policy at" in refused(tmp_path / "nothing")
    assert "no policy at" in refused(tmp_path)


def test_other_kinds_of_file_and_truncated_ones_are_refused(saved):
    for content in (b"", b"text", b"\x80\x05pickle", b"\xff" * 100, saved.read_bytes()[:-1]):
        saved.write_bytes(content)
        assert "not a readable safetensors file" in refused(saved)


def test_a_file_of_the_first_format_has_relu_units(tmp_path):
    policy, _ = make(BOX)
    saved = tmp_path / "policy.safetensors"
    policy.save(saved)
    with safe_open(saved, framework="np") as file:
        about = json.loads(file.metadata()[FORMAT])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    del about["units"]
    save_file(tensors, saved, {FIRST_FORMAT: json.dumps(about)})
    assert load_policy(saved).form == SQUASHED
    assert_array_equal(load_policy(saved)(OBSERVATIONS), policy(OBSERVATIONS))


@pytest.mark.parametrize("change", [{"units": "sine"}, {"units": None}, {"kind": "beta"}, {"kind": []}])
def test_a_policy_of_an_unknown_form_is_refused(saved, change):
    with safe_open(saved, framework="np") as file:
        about = json.loads(file.metadata()[FORMAT])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    save_file(tensors, saved, {FORMAT: json.dumps(about | change)})
    assert "damaged" in refused(saved)


def test_other_formats_are_refused_even_with_types_that_numpy_lacks(saved):
    rewrite(saved, form="valuedice-policy-9")
    message = refused(saved)
    assert "'valuedice-policy-9'" in message
    assert "'valuedice-policy-2'" in message
    header = json.dumps({"weight": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}).encode()
    saved.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    assert "format 'unknown'" in refused(saved)


@pytest.mark.parametrize(
    "changes",
    [
        {"layer1_dot_kernel": None},
        {"obs_mean": None},
        {"action_low": None},
        {"layer1_dot_kernel": np.zeros((32, 17), np.float32)},
        {"layer2_dot_bias": np.zeros((1, 4), np.float32)},
        # Location and deviation come in pairs.
        {"layer2_dot_kernel": np.zeros((16, 5), np.float32), "layer2_dot_bias": np.zeros(5, np.float32)},
        {"obs_std": np.ones(2, np.float32)},
        {"action_high": np.ones(1, np.float32)},
    ],
)
def test_a_file_whose_parts_do_not_fit_is_refused(saved, changes):
    rewrite(saved, **changes)
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
    assert np.abs(encoded).max() <= 1 + 1e-3  # if the bounds are large and near each other, float32 is coarse
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
    assert_array_equal(spec.encode(np.array([[0.5, 3.0]])), [[0, -1]])
    assert_array_equal(spec.decode(np.array([[0.0, -1.0]])), [[0.5, 3]])
