"""Suites: what a TOML file means, and where its mistakes are."""

from __future__ import annotations

from pathlib import Path

import pytest

from valuedice.algorithms import BC, ValueDICE
from valuedice.errors import InputError
from valuedice.sweep.suite import Overrides, load_suite, seeds_of, shipped_suites

SMALL = """
description = "Small"
seeds = "0-1"
episodes = [1, 2]

[tasks.CartPole-v1]
demos = "cartpole"

[tasks."Pendulum-v1"]
demos = "pendulum"
steps = 2_000

[settings]
steps = 5_000
eval_every = 500

[contestants.value-dice]
title = "ValueDICE"
hidden = [32, 32]

[contestants.bc]
updates = 300
"""


def written(text: str) -> str:
    Path("suite.toml").write_text(text)
    return "suite.toml"


@pytest.fixture(autouse=True)
def _own_folder(own_folder):
    """Each test writes its suite to a folder of its own."""


def test_a_suite_is_the_product_of_its_parts():
    cells = load_suite(written(SMALL)).cells()
    assert len(cells) == len({cell.name for cell in cells}) == 2 * 2 * 2 * 2
    assert cells[0].name == "CartPole-v1-1ep-value-dice-seed0"


def test_a_contestants_settings_come_before_the_tasks_and_these_before_the_suites():
    cells = {cell.name: cell for cell in load_suite(written(SMALL)).cells()}
    algorithm, config = cells["Pendulum-v1-2ep-value-dice-seed1"].built()
    assert algorithm == ValueDICE(hidden=(32, 32))
    assert (config.env, config.demos, config.episodes, config.seed) == ("Pendulum-v1", "pendulum", 2, 1)
    assert (config.steps, config.eval_every) == (2_000, 500)
    assert cells["CartPole-v1-2ep-value-dice-seed1"].total == 5_000
    cloning, config = cells["Pendulum-v1-2ep-bc-seed1"].built()
    assert (cloning, config.updates, config.steps) == (BC(), 300, None)


@pytest.mark.parametrize(
    ("settings", "keep"),
    [
        ("preset = 'default'", "closest"),
        ("preset = 'default'\nkeep = 'last'", "last"),
        ("preset = 'paper'", "last"),
        ("preset = 'paper'\nkeep = 'closest'", "closest"),
    ],
)
def test_a_contestant_with_the_papers_preset_keeps_the_last_policy_unless_told_otherwise(settings, keep):
    cells = load_suite(written(SMALL.replace("updates = 300", f"updates = 300\n{settings}"))).cells()
    algorithm, config = next(cell for cell in cells if cell.algorithm == "bc").built()
    assert config.resolved(algorithm).keep == keep


def test_the_command_line_overrides_the_suite():
    cells = load_suite(written(SMALL)).cells(Overrides(seeds="7", steps=3_000, updates=10))
    assert {cell.seed for cell in cells} == {7}
    assert {cell.total for cell in cells if cell.algorithm == "value-dice"} == {3_000}
    assert {cell.total for cell in cells if cell.algorithm == "bc"} == {10}


def test_varied_settings_make_a_contestant_for_each_combination():
    text = SMALL.replace(
        "hidden = [32, 32]", "vary.replay_regularization = [0.0, 0.5]\nvary.hidden = [[8], [9, 9]]"
    )
    cells = load_suite(written(text)).cells(Overrides(seeds="0"))
    found = {cell.contestant: cell for cell in cells if cell.algorithm == "value-dice"}
    assert list(found) == [
        "value-dice-replay_regularization=0.0-hidden=8",
        "value-dice-replay_regularization=0.0-hidden=9x9",
        "value-dice-replay_regularization=0.5-hidden=8",
        "value-dice-replay_regularization=0.5-hidden=9x9",
    ]
    last = found["value-dice-replay_regularization=0.5-hidden=9x9"]
    assert last.built()[0] == ValueDICE(replay_regularization=0.5, hidden=(9, 9))
    assert last.title == "ValueDICE, replay_regularization 0.5, hidden 9x9"


def test_settings_of_what_an_algorithm_contains_stand_beside_its_own():
    text = SMALL.replace("[contestants.bc]\nupdates = 300", "[contestants.dac]\ncritic_lr = 0.5")
    text = text.replace('[tasks.CartPole-v1]\ndemos = "cartpole"\n', "")
    cell = load_suite(written(text)).cells()[-1]
    algorithm, _ = cell.built()
    assert algorithm.sac.critic_lr == 0.5  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("name", shipped_suites())
def test_shipped_suites_are_sound(name, tmp_path):
    for task in ("HalfCheetah-v5", "Hopper-v5", "Walker2d-v5", "Ant-v5"):
        (tmp_path / f"{task}.npz").touch()
    shipped = name in ("quick", "ring", "library")
    cells = load_suite(name).cells(Overrides(demos=None if shipped else tmp_path))
    assert len({cell.name for cell in cells}) == len(cells)


def test_the_shipped_suites_hold_what_the_paper_compares(tmp_path):
    for task in ("HalfCheetah-v5", "Hopper-v5", "Walker2d-v5", "Ant-v5"):
        (tmp_path / f"{task}.npz").touch()

    def contestants(name: str) -> dict[str, object]:
        return {cell.contestant: cell.built()[0] for cell in load_suite(name).cells(Overrides(demos=tmp_path))}

    one = contestants("paper-1")
    assert one == contestants("paper-10")
    assert one["value-dice"] == ValueDICE.paper()
    assert one["bc-paper"] == BC.paper()
    assert {"dac", "dac-paper", "gail", "bc"} <= one.keys()
    assert {cell.episodes for cell in load_suite("dual-dice").cells(Overrides(demos=tmp_path))} == {1, 10}
    alphas = {getattr(algorithm, "replay_regularization", None) for algorithm in contestants("ablations").values()}
    assert alphas == {0.0, 0.05, 0.1, 0.5}
    assert {cell.subsample for cell in load_suite("subsampled").cells(Overrides(demos=tmp_path))} == {20}


@pytest.mark.parametrize(
    ("given", "seeds"),
    [("0-2", [0, 1, 2]), ("3", [3]), ("0-1,7", [0, 1, 7]), (5, [5]), ([2, 4], [2, 4]), ("1,1", [1])],
)
def test_seeds_may_be_written_in_several_ways(given, seeds):
    assert seeds_of(given) == seeds


@pytest.mark.parametrize("given", ["", "2-0", "a", "0-", "-1", "0..2", "0-999999", "1e3"])
def test_what_is_no_range_of_seeds_is_refused(given):
    with pytest.raises(InputError, match="no range of seeds"):
        seeds_of(given)


MISTAKES = {
    "tasks = 1 2": "at line 1",
    "": "no tasks",
    SMALL.replace("seeds =", "sedes ="): "suite.toml:3: a suite has no setting 'sedes'; did you mean 'seeds'?",
    SMALL.replace("hidden = [32", "hiden = [32"): "suite.toml:19: [contestants.value-dice] has no setting 'hiden'",
    SMALL.replace("[32, 32]", "32"): "suite.toml:19: hidden cannot be 32",
    SMALL.replace("[32, 32]", "[]"): "[contestants.value-dice] on CartPole-v1: `hidden` is ()",
    SMALL.replace("updates = 300", "algorithm = 'bcc'"): "suite.toml:22: no algorithm 'bcc'; there are: value-dice",
    SMALL.replace("updates = 300", "preset = 'pap'"): "suite.toml:22: no preset 'pap'",
    SMALL.replace("updates = 300", "updates = 0"): "`updates` is 0",
    SMALL.replace("updates = 300", "updates = '300'"): "suite.toml:22: updates cannot be '300'",
    SMALL.replace("updates = 300", "vary.lr = 1.0"): "needs a list for each setting",
    SMALL.replace("updates = 300", "threads = 2"): "[contestants.bc] has no setting 'threads'",
    SMALL.replace("eval_every = 500", "eval_evry = 5"): "suite.toml:15: [settings] has no setting 'eval_evry'",
    SMALL.replace("steps = 2_000", "stepps = 1"): "suite.toml:11: [tasks.Pendulum-v1] has no setting 'stepps'",
    SMALL.replace("[1, 2]", "[0]"): "suite.toml:4: episodes must be a number from 1 on",
    SMALL.replace("[1, 2]", "'all'"): "suite.toml:4: episodes cannot be 'all'",
    SMALL.replace('"0-1"', '"1-0"'): "no range of seeds",
    SMALL.replace('demos = "pendulum"', 'demos = "none.npz"'): "no demonstrations of Pendulum-v1",
    SMALL.partition("[contestants")[0]: "no contestants",
    SMALL.replace('"0-1"', "[]"): "there are no seeds",
    SMALL.replace('"0-1"', "[-1]"): "-1 is no seed",
    SMALL.replace("[1, 2]", "[1, 1]"): "two runs would be named CartPole-v1-1ep-value-dice-seed0",
    SMALL.replace("updates = 300", "updates = 300\nsteps = 5"): "bc takes no steps in an environment",
    SMALL.replace("steps = 2_000", "steps = 'a'"): "suite.toml:11: steps cannot be 'a'",
    SMALL.replace('"pendulum"', "5"): "suite.toml:10: demos cannot be 5",
    SMALL.replace('"ValueDICE"', "5"): "suite.toml:18: title cannot be 5",
    SMALL.replace("[32, 32]", "[8]\nvary.eval_env = ['a/b']"): "names folders",
    f"seeds = {'9' * 5000}": "correct the file",
    SMALL.replace(
        "[contestants.bc]", '[contestants."a/b"]\nalgorithm = "bc"'
    ): "the contestant 'a/b' names folders",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_is_one_line_with_its_place(text):
    with pytest.raises(InputError) as caught:
        load_suite(written(text)).cells()
    assert MISTAKES[text] in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_task_without_demonstrations_in_the_folder_is_named():
    Path("folder").mkdir()
    Path("folder/CartPole-v1.npz").touch()
    with pytest.raises(InputError, match=r"no demonstrations of Pendulum-v1 in folder"):
        load_suite(written(SMALL)).cells(Overrides(demos=Path("folder")))


@pytest.mark.parametrize("name", ["nothing", "missing.toml", ""])
def test_an_unknown_suite_is_refused_with_the_known_ones(name):
    with pytest.raises(InputError, match=r"no suite .*ablations.*quick"):
        load_suite(name)


def test_a_file_that_is_no_text_is_refused():
    Path("suite.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="cannot be read"):
        load_suite("suite.toml")
