"""Every setting is stated once, and what does not fit together is refused before anything is opened."""

from __future__ import annotations

import inspect
import json
from dataclasses import fields
from math import nan
from typing import Any

import numpy as np
import pytest
from gymnasium.envs.classic_control import PendulumEnv
from small import small

import valuedice as vd
from valuedice.errors import InputError
from valuedice.training.config import TrainConfig, stored_fields

PENDULUM: dict[str, Any] = {"env": "Pendulum-v1"}
NO_DEMOS: dict[str, Any] = {"demos": None}


def resolved(name: str, **settings: Any) -> TrainConfig:
    given: dict[str, Any] = {"demos": "pendulum"} | settings
    return TrainConfig(**given).resolved(small(name))


def test_the_fields_are_the_keyword_arguments_of_train():
    algorithm, *parameters = inspect.signature(vd.train).parameters.values()
    assert algorithm.name == "algorithm"
    assert [(each.name, each.default) for each in parameters] == [(f.name, f.default) for f in fields(TrainConfig)]


def test_config_json_holds_every_stored_field_and_nothing_twice(whole):
    # A list of pairs instead of a dictionary, which would hide a repeated key.
    pairs: list[tuple[str, Any]] = json.loads((whole / "config.json").read_text(), object_pairs_hook=list)
    stored = [entry.name for entry in stored_fields()]
    assert [name for name, _ in pairs] == ["format", "algorithm", "hyperparameters", *stored, "fingerprints"]
    assert not {name for name, _ in dict(pairs)["hyperparameters"]} & {name for name, _ in pairs}
    others = {entry.name for entry in fields(TrainConfig)} - set(stored)
    assert others == {"out", "resume", "quiet", "on_evaluation", "loggers"}


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("value-dice", PENDULUM),
        ("value-dice", PENDULUM | {"steps": 70, "eval_env": "CartPole-v1"}),
        ("value-dice", PENDULUM | {"offline": True}),
        ("value-dice", {"updates": 70, "eval_env": "Pendulum-v1"}),
        ("bc", PENDULUM),
        ("gail", PENDULUM | {"steps": 71}),
        ("sac", PENDULUM | NO_DEMOS | {"target_return": 0.0}),
    ],
)
def test_a_resolved_config_has_every_default_and_stays_as_it_is(name, settings):
    config = resolved(name, **settings)
    assert config.resolved(small(name)) == config
    assert config.threads is not None
    assert config.eval_env is not None
    assert config.offline == (config.training_env is None) == (config.steps is None) == (config.updates is not None)
    # All environments step together.
    assert config.total % 2 == 0


@pytest.mark.parametrize(
    ("name", "settings", "says"),
    [
        ("value-dice", PENDULUM | {"updates": 9}, "`updates` are for offline training; give `steps`"),
        ("value-dice", {"steps": 9}, "`steps` are for training in an environment; give `updates`"),
        ("value-dice", PENDULUM | {"offline": True, "steps": 9}, "`steps` are for training in an environment"),
        ("bc", PENDULUM | {"steps": 9}, "bc takes no steps in an environment; give `updates`"),
        ("dac", {"updates": 9}, "dac cannot learn offline: .*; name one with `env`, or use value-dice or bc"),
        ("gail", PENDULUM | {"offline": True}, "gail cannot learn offline"),
        ("sac", NO_DEMOS, "sac cannot learn offline"),
        ("sac", PENDULUM, "sac learns from rewards, not from demonstrations; omit `demos`"),
        ("value-dice", NO_DEMOS | PENDULUM, "no demonstrations given; name .* with `demos`"),
        ("value-dice", {"target_return": 9.0}, "value-dice learns without rewards; omit `target_return`"),
        ("bc", {"replay_data": "pendulum"}, "bc does not use replay data .*; omit `replay_data`"),
        (
            "value-dice",
            PENDULUM | {"steps": 4},
            "4 steps end before the first update, at step 5; .*training_starts`",
        ),
        ("gail", PENDULUM | {"steps": 1}, "2 steps end before the first update, at step 4; .*rollout`"),
        ("value-dice", {"updates": 0}, "`updates` is 0; it must be finite and at least 1"),
        ("value-dice", PENDULUM | {"steps": 0}, "`steps` is 0"),
        ("value-dice", {"updates": 2.5}, "`updates` is 2.5; it must be a whole number"),
        ("value-dice", {"eval_every": 0}, "`eval_every` is 0"),
        ("value-dice", {"eval_episodes": 0}, "`eval_episodes` is 0"),
        ("value-dice", {"replay_capacity": 0}, "`replay_capacity` is 0"),
        ("value-dice", {"subsample": 0}, "`subsample` is 0; it must be finite and at least 1"),
        ("value-dice", {"subsample": 1.5}, "`subsample` is 1.5; it must be a whole number"),
        ("value-dice", {"seed": -1}, "`seed` is -1"),
        ("value-dice", {"seed": 2**32}, r"`seed` is 4294967296; it must be below 2\*\*32"),
        ("value-dice", {"checkpoint_seconds": nan}, "`checkpoint_seconds` is nan"),
        ("sac", PENDULUM | NO_DEMOS | {"target_return": nan}, "`target_return` is nan; it must be finite"),
        ("value-dice", {"threads": 99}, "`threads` is 99, but this process computes with .*; set NPROC"),
        ("value-dice", {"resume": True}, "nothing to resume; name the run folder with `out`"),
        ("value-dice", {"env": PendulumEnv()}, "give its id, or a function that makes one"),
        (
            "value-dice",
            {"keep": "closest"},
            "no policy is evaluated without an environment; name an `eval_env`, or",
        ),
        ("sac", PENDULUM | NO_DEMOS | {"keep": "closest"}, "sac has no demonstrations to be close to; omit `keep`"),
        ("value-dice", {"eval_env": 5}, "5 is no environment; give its id, or a function that makes one"),
    ],
)
def test_what_does_not_fit_together_is_refused(name, settings, says):
    with pytest.raises(InputError, match=says):
        resolved(name, **settings)


def test_whole_numbers_may_be_floats_or_numbers_of_numpy():
    config = resolved("value-dice", updates=4e1, seed=np.int64(3))
    assert (config.updates, config.seed) == (40, 3)
    assert json.dumps([config.updates, config.seed]) == "[40, 3]"


@pytest.mark.parametrize(
    ("given", "says"), [({"env": "Pendulum-v1"}, "multiple values for argument 'env'"), ({"step": 5}, "'step'")]
)
def test_a_repeated_or_misspelled_argument_is_an_error_of_train(given, says):
    with pytest.raises(TypeError, match=f"^train got .*{says}"):
        vd.train(small(), "pendulum", "Pendulum-v1", **given)


@pytest.mark.parametrize(
    ("name", "settings", "done", "rounds"),
    [
        # Offline, a round ends where a block of 200 batches or an evaluation ends.
        (
            "value-dice",
            {"updates": 300, "eval_every": 150},
            0,
            [(150, 150, True), (200, 50, False), (300, 100, True)],
        ),
        # Online it is one step; the last one is evaluated.
        ("value-dice", PENDULUM | {"steps": 6, "eval_every": 5}, 3, [(4, 0, False), (5, 2, True), (6, 2, True)]),
        # With parallel environments, the first count past a multiple is evaluated.
        ("gail", PENDULUM | {"steps": 6, "eval_every": 3}, 0, [(2, 0, False), (4, 1, True), (6, 0, True)]),
    ],
)
def test_a_run_is_made_of_rounds(name, settings, done, rounds):
    config = resolved(name, **settings)
    assert [tuple(each) for each in config.rounds(done, small(name).pace)] == rounds
