"""Every setting is stated once, and what does not fit together is refused before anything is opened."""

from __future__ import annotations

import inspect
import json
from dataclasses import fields
from math import nan
from typing import Any

import pytest
from gymnasium.envs.classic_control import PendulumEnv
from small import small

import valuedice as vd
from valuedice.errors import InputError
from valuedice.training.config import TrainConfig, stored_fields

PENDULUM: dict[str, Any] = {"env": "Pendulum-v1"}
NO_DEMOS: dict[str, Any] = {"demos": None}


def test_the_fields_are_the_keyword_arguments_of_train():
    algorithm, *parameters = inspect.signature(vd.train).parameters.values()
    assert algorithm.name == "algorithm"
    assert [(each.name, each.default) for each in parameters] == [(f.name, f.default) for f in fields(TrainConfig)]


def test_config_json_holds_every_stored_field_and_nothing_twice(whole):
    # A list of pairs instead of a dictionary, which would hide a repeated key.
    pairs: list[tuple[str, Any]] = json.loads((whole / "config.json").read_text(), object_pairs_hook=list)
    content, stored = dict(pairs), [entry.name for entry in stored_fields()]
    assert [name for name, _ in pairs] == ["format", "algorithm", "hyperparameters", *stored, "fingerprints"]
    assert not {name for name, _ in content["hyperparameters"]} & set(content)
    assert {"out", "resume", "quiet", "on_evaluation", "loggers"} == {f.name for f in fields(TrainConfig)} - {
        *stored
    }


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("value-dice", PENDULUM),
        ("value-dice", PENDULUM | {"steps": 70, "eval_env": "CartPole-v1", "threads": None}),
        ("value-dice", PENDULUM | {"offline": True}),
        ("value-dice", {"updates": 70, "eval_env": "Pendulum-v1"}),
        ("bc", PENDULUM),
        ("gail", PENDULUM | {"steps": 71}),
        ("sac", PENDULUM | NO_DEMOS | {"target_return": 0.0}),
    ],
)
def test_a_resolved_config_has_every_default_and_stays_as_it_is(name, settings):
    algorithm = small(name)
    config = TrainConfig(**({"demos": "pendulum"} | settings)).resolved(algorithm)
    assert config.resolved(algorithm) == config
    assert config.threads is not None
    assert config.offline == (config.training_env is None) == (config.steps is None) == (config.updates is not None)
    assert config.env is None or config.eval_env is not None
    # All environments step together.
    assert config.offline or algorithm.pace is None or config.total % algorithm.pace.environments == 0


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
            "4 steps end before the first update, at step 5; .* `training_starts`",
        ),
        ("gail", PENDULUM | {"steps": 3}, "4 steps end before the first update, at step 8; .* `rollout`"),
        ("value-dice", {"updates": 0}, "`updates` is 0; it must be finite and at least 1"),
        ("value-dice", PENDULUM | {"steps": 0}, "`steps` is 0"),
        ("value-dice", {"eval_every": 0}, "`eval_every` is 0"),
        ("value-dice", {"eval_episodes": 0}, "`eval_episodes` is 0"),
        ("value-dice", {"replay_capacity": 0}, "`replay_capacity` is 0"),
        ("value-dice", {"seed": -1}, "`seed` is -1"),
        ("value-dice", {"seed": 2**32}, r"`seed` is 4294967296; it must be below 2\*\*32"),
        ("value-dice", {"checkpoint_seconds": nan}, "`checkpoint_seconds` is nan"),
        ("sac", PENDULUM | NO_DEMOS | {"target_return": nan}, "`target_return` is nan; it must be finite"),
        ("value-dice", {"threads": 99}, "`threads` is 99, but this process computes with .*; set NPROC"),
        ("value-dice", {"resume": True}, "nothing to resume; name the run folder with `out`"),
        ("value-dice", {"env": PendulumEnv()}, "give its id, or a function that makes one"),
        ("value-dice", {"eval_env": 5}, "5 is no environment; give its id, or a function that makes one"),
    ],
)
def test_what_does_not_fit_together_is_refused(name, settings, says):
    algorithm = small(name, rollout=8) if "rollout" in says else small(name)
    with pytest.raises(InputError, match=says):
        TrainConfig(**({"demos": "pendulum"} | settings)).resolved(algorithm)


def test_a_misspelled_or_repeated_argument_is_an_error_of_train(pendulum):
    with pytest.raises(TypeError, match="train got multiple values for argument 'env'"):
        vd.train(small(), pendulum, "Pendulum-v1", env="Pendulum-v1")
    with pytest.raises(TypeError, match="train got an unexpected keyword argument 'step'"):
        vd.train(small(), pendulum, step=5)  # pyright: ignore[reportCallIssue]


def test_rounds_end_where_a_block_or_an_evaluation_ends():
    config = TrainConfig("pendulum", updates=450, eval_every=150).resolved(small())
    assert [tuple(each) for each in config.rounds(0, None)] == [
        (150, 150, True),
        (200, 50, False),
        (300, 100, True),
        (400, 100, False),
        (450, 50, True),
    ]
    assert [each.done for each in config.rounds(300, None)] == [400, 450]


def test_online_rounds_are_single_steps_and_the_last_is_evaluated():
    algorithm = small()
    config = TrainConfig("pendulum", "Pendulum-v1", steps=7, eval_every=5).resolved(algorithm)
    rounds = list(config.rounds(3, algorithm.pace))
    assert [tuple(each) for each in rounds] == [(4, 0, False), (5, 2, True), (6, 2, False), (7, 2, True)]


def test_environments_side_by_side_are_evaluated_at_the_first_count_past_a_multiple():
    algorithm = small("gail", environments=3, rollout=6)
    config = TrainConfig("pendulum", "Pendulum-v1", steps=17, eval_every=5).resolved(algorithm)
    rounds = list(config.rounds(0, algorithm.pace))
    assert [each.done for each in rounds] == [3, 6, 9, 12, 15, 18]
    assert [each.done for each in rounds if each.evaluates] == [6, 12, 15, 18]
    assert [each.done for each in rounds if each.updates] == [6, 12, 18]
