"""Who watches a run: `metrics.csv`, TensorBoard, loggers and callbacks. None of them changes what is learned."""

from __future__ import annotations

import csv
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from resuming import killed, result, same, train
from small import same as same_policy

import valuedice as vd
from valuedice.errors import InputError
from valuedice.types import Metrics


def events(folder: Path) -> list[tuple[int, dict[str, float]]]:
    """Step and values of each TensorBoard event."""
    (path,) = folder.glob("events.out.tfevents.*")
    data, found = path.read_bytes(), []
    while data:
        size = int.from_bytes(data[:8], "little")
        event = import_module("tensorboardX.proto.event_pb2").Event.FromString(data[12 : 12 + size])
        found.append((event.step, {value.tag: value.simple_value for value in event.summary.value}))
        data = data[16 + size :]
    return found[1:]  # the first event names the format


class Recorder:
    """A logger that keeps what it gets, and takes the rows apart as others do."""

    def __init__(self, fails: BaseException | None = None) -> None:
        self.rows: list[Metrics] = []
        self.closed, self.fails = 0, fails

    def log(self, row: Metrics) -> None:
        assert not self.closed
        self.rows.append(dict(row))
        if row.pop("step") == 12 and self.fails is not None:
            raise self.fails

    def close(self) -> None:
        self.closed += 1


def test_metrics_csv_and_tensorboard_hold_the_rows_of_the_run(finished, whole):
    with (whole / "metrics.csv").open(newline="") as file:
        written = list(csv.DictReader(file))
    begin = "step,updates,wall_seconds,return_mean,return_std,expert_return,normalized_return,distance,kl_estimate"
    assert ",".join(written[0]).startswith(begin)
    # Nothing had been learned at the first evaluation, after the warm start: it has fewer columns.
    assert (written[0]["nu_penalty"], "nu_penalty" in finished.metrics[0]) == ("", False)
    for cells, (step, values), row in zip(written, events(whole), finished.metrics, strict=True):
        known = {name: value for name, value in row.items() if value is not None}
        assert {name: float(cell) for name, cell in cells.items() if cell} == pytest.approx(known, rel=1e-6)
        assert values | {"step": step, "updates": row["updates"]} == pytest.approx(known, rel=1e-6)


def test_rows_after_the_checkpoint_are_discarded(whole, pendulum, tmp_path):
    with killed(14):
        train(pendulum, "Pendulum-v1", tmp_path / "run")
    assert [step for step, _ in events(tmp_path / "run")] == [0, 4, 8, 12, 16]
    run = train(pendulum, "Pendulum-v1", tmp_path / "run", resume=True, eval_every=7)
    steps = [0, 4, 8, 12, 14, 21, 24]
    assert [step for step, _ in events(tmp_path / "run")] == [row["step"] for row in run.metrics] == steps
    assert len((tmp_path / "run" / "metrics.csv").read_text().splitlines()) == 1 + len(steps)
    assert result(tmp_path / "run").last == result(whole).last


def test_loggers_and_a_callback_see_every_evaluation_and_change_nothing(whole, pendulum, tmp_path):
    loggers, seen, obs = [Recorder(), Recorder()], [], pendulum.episodes[0].observations[0]

    def watch(progress: vd.Progress) -> None:
        metrics = progress.metrics
        assert (progress.step, progress.updates) == (metrics["step"], metrics["updates"])
        seen.append((dict(metrics), progress.policy(obs)))
        metrics.clear()

    run = train(pendulum, "Pendulum-v1", tmp_path / "run", loggers=loggers, on_evaluation=watch)
    assert same(tmp_path / "run", whole)
    assert loggers[0].rows == loggers[1].rows == [metrics for metrics, _ in seen] == run.metrics
    assert [logger.closed for logger in loggers] == [1, 1]
    # Each time it is the policy of the moment, in the end the last one. Until step 5 nothing changes it.
    actions = np.concatenate([action for _, action in seen])
    assert len(np.unique(actions)) == len(seen) - 1
    assert actions[0] == actions[1]
    assert actions[-1] == vd.load_policy(tmp_path / "run" / "policy-last.safetensors")(obs)


def test_a_callback_that_returns_true_ends_the_run_which_is_then_complete(pendulum, whole, tmp_path):
    run = train(pendulum, "Pendulum-v1", tmp_path / "run", on_evaluation=lambda progress: progress.step >= 8)
    assert [row["step"] for row in run.metrics] == [0, 4, 8]
    assert (tmp_path / "run" / "summary.json").is_file()
    # The last checkpoint and the policy are those of the end, and the run can be taken further.
    loaded = vd.load_run(tmp_path / "run")
    assert loaded.metrics == run.metrics
    assert same_policy(loaded.policy, run.policy)
    loaded.resume(quiet=True)
    assert same(tmp_path / "run", whole)


@pytest.mark.parametrize("error", [ZeroDivisionError("mine"), KeyboardInterrupt()])
@pytest.mark.parametrize("callback", [True, False])
def test_if_a_callback_or_logger_raises_the_run_ends_with_that_and_is_saved(
    callback, error, pendulum, whole, tmp_path
):
    failing, other = Recorder(fails=error), Recorder()
    watch = {"on_evaluation": lambda each: failing.log(each.metrics)} if callback else {"loggers": [other, failing]}
    with pytest.raises(type(error)) as caught:
        train(pendulum, "Pendulum-v1", tmp_path / "run", **watch)
    assert caught.value is error
    assert callback or (failing.closed, other.closed) == (1, 1)
    run = vd.load_run(tmp_path / "run")
    assert [row["step"] for row in run.metrics] == [0, 4, 8, 12]
    assert not (tmp_path / "run" / "summary.json").exists()
    run.resume(quiet=True)
    assert same(tmp_path / "run", whole)


def test_a_callback_that_raises_during_divergence_keeps_the_good_checkpoint(pendulum, tmp_path, monkeypatch):
    run = train(pendulum, "Pendulum-v1", tmp_path / "run", steps=8)
    monkeypatch.setattr("valuedice.training.stopping.LEAST_SAMPLE_SIZE", 2.0)
    with pytest.raises(ZeroDivisionError):
        run.resume(steps=24, on_evaluation=lambda _: 1 / 0)
    assert [row["step"] for row in vd.load_run(tmp_path / "run").metrics] == [0, 4, 8]


def test_loggers_are_closed_once_also_if_the_run_is_refused_or_resumed(pendulum, tmp_path):
    refused, used = Recorder(), Recorder()
    with pytest.raises(InputError, match="eval_every"):
        train(pendulum, eval_every=0, loggers=[refused])
    train(pendulum, updates=2, out=tmp_path / "run", loggers=[used]).resume(updates=4)
    assert (refused.closed, used.closed, len(used.rows)) == (1, 1, 2)
