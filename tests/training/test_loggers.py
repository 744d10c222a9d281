"""Who watches a run: `metrics.csv`, TensorBoard, loggers and callbacks. None of them changes what is learned."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from resuming import killed, same, train
from small import same as same_policy

import valuedice as vd
from valuedice.errors import InputError
from valuedice.types import Metrics


def events(folder: Path) -> list[tuple[int, dict[str, float]]]:
    """Step and values of each TensorBoard event."""
    from tensorboardX.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]

    (path,) = folder.glob("events.out.tfevents.*")
    data, found = path.read_bytes(), []
    while data:
        size = int.from_bytes(data[:8], "little")
        event = Event.FromString(data[12 : 12 + size])
        found.append((event.step, {value.tag: value.simple_value for value in event.summary.value}))
        data = data[16 + size :]
    return found[1:]  # the first event names the format


class Recorder:
    """A logger that keeps what it gets, and takes the rows apart as others do."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.rows: list[Metrics] = []
        self.closed = 0

    def log(self, row: Metrics) -> None:
        assert not self.closed
        self.rows.append(dict(row))
        self.steps.append(row.pop("step"))

    def close(self) -> None:
        self.closed += 1


def test_metrics_csv_and_tensorboard_hold_the_rows_of_the_run(finished, whole):
    with (whole / "metrics.csv").open(newline="") as file:
        written = list(csv.DictReader(file))
    begin = "step updates wall_seconds return_mean return_std expert_return normalized_return kl_estimate".split()
    assert list(written[0])[: len(begin)] == begin
    # Nothing had been learned at the first evaluation, which therefore has fewer columns.
    assert (written[0]["nu_penalty"], "nu_penalty" in finished.metrics[0]) == ("", False)
    for cells, (step, values), row in zip(written, events(whole), finished.metrics, strict=True):
        assert step == row["step"]
        known = {name: value for name, value in row.items() if value is not None}
        assert {name: float(cell) for name, cell in cells.items() if cell} == pytest.approx(known, rel=1e-6)
        assert values == pytest.approx({k: v for k, v in known.items() if k not in ("step", "updates")}, rel=1e-6)


def test_rows_after_the_checkpoint_are_discarded(finished, pendulum, tmp_path):
    with killed(13):
        train(pendulum, "Pendulum-v1", tmp_path / "run")
    assert [step for step, _ in events(tmp_path / "run")] == [4, 8, 12, 16]
    train(pendulum, "Pendulum-v1", tmp_path / "run", resume=True, eval_every=7)
    assert [step for step, _ in events(tmp_path / "run")] == [4, 8, 12, 14, 21, 24]
    assert len((tmp_path / "run" / "metrics.csv").read_text().splitlines()) == 1 + 6
    assert same_policy(vd.load_policy(tmp_path / "run"), finished.policy)


def test_loggers_and_a_callback_see_every_evaluation_and_change_nothing(finished, whole, pendulum, tmp_path):
    loggers, seen = [Recorder(), Recorder()], []

    def watch(progress: vd.Progress) -> None:
        action = progress.policy(pendulum.episodes[0].observations[:1])
        seen.append((progress.step, progress.updates, progress.metrics, action))

    run = train(pendulum, "Pendulum-v1", tmp_path / "run", loggers=loggers, on_evaluation=watch)
    assert same(tmp_path / "run", whole)
    for logger in loggers:
        assert (logger.rows, logger.closed) == (run.metrics, 1)
    assert [(step, updates) for step, updates, *_ in seen] == [(r["step"], r["updates"]) for r in run.metrics]
    assert [metrics for _, _, metrics, _ in seen] == run.metrics
    # Each time it is the policy of the moment, in the end that of the run.
    actions = np.concatenate([action for *_, action in seen])
    assert len(np.unique(actions)) == len(seen)
    assert actions[-1] == finished.policy(pendulum.episodes[0].observations[0])


def test_a_callback_that_returns_true_ends_the_run_which_is_then_complete(pendulum, whole, tmp_path):
    logger = Recorder()
    settings: dict[str, Any] = {"on_evaluation": lambda progress: progress.step >= 8, "loggers": [logger]}
    run = train(pendulum, "Pendulum-v1", tmp_path / "run", **settings)
    assert [row["step"] for row in run.metrics] == logger.steps == [4, 8]
    assert (tmp_path / "run" / "summary.json").is_file()
    assert same_policy(vd.load_policy(tmp_path / "run"), run.policy)
    # The last checkpoint is that of the end, and the run can be taken further without the callback.
    assert vd.load_run(tmp_path / "run").metrics == run.metrics
    vd.load_run(tmp_path / "run").resume(quiet=True)
    assert same(tmp_path / "run", whole)


@pytest.mark.parametrize("who", ["on_evaluation", "loggers"])
@pytest.mark.parametrize("error", [ZeroDivisionError("mine"), KeyboardInterrupt()])
def test_if_a_callback_or_logger_raises_the_run_ends_with_that_and_is_saved(who, error, pendulum, whole, tmp_path):
    class Failing(Recorder):
        def log(self, row: Metrics) -> None:
            if row["step"] == 12:
                raise error

    logger = Failing() if who == "loggers" else Recorder()
    other = Recorder()
    call = (lambda progress: Failing().log(progress.metrics)) if who == "on_evaluation" else None
    with pytest.raises(type(error)) as caught:
        train(pendulum, "Pendulum-v1", tmp_path / "run", loggers=[other, logger], on_evaluation=call)
    assert caught.value is error
    assert (logger.closed, other.closed) == (1, 1)
    assert [row["step"] for row in vd.load_run(tmp_path / "run").metrics] == [4, 8, 12]
    assert not (tmp_path / "run" / "summary.json").exists()
    vd.load_run(tmp_path / "run").resume(quiet=True)
    assert same(tmp_path / "run", whole)


def test_a_callback_that_raises_while_divergence_is_likely_keeps_the_good_checkpoint(
    pendulum, tmp_path, monkeypatch
):
    train(pendulum, "Pendulum-v1", tmp_path / "run", steps=8)
    monkeypatch.setattr("valuedice.training.stopping.LEAST_SAMPLE_SIZE", 2.0)
    with pytest.raises(ZeroDivisionError):
        train(pendulum, "Pendulum-v1", tmp_path / "run", resume=True, on_evaluation=lambda _: 1 / 0)
    assert [row["step"] for row in vd.load_run(tmp_path / "run").metrics] == [4, 8]


def test_loggers_are_closed_once_also_if_the_run_is_refused_or_resumed(pendulum, tmp_path):
    refused, used = Recorder(), Recorder()
    with pytest.raises(InputError, match="eval_every"):
        train(pendulum, eval_every=0, loggers=[refused])
    train(pendulum, updates=2, out=tmp_path / "run", loggers=[used]).resume(updates=4)
    assert (refused.closed, used.closed, len(used.rows)) == (1, 1, 1)
