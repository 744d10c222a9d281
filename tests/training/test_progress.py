"""What a person sees of a run, in a terminal and elsewhere."""

import io
import re
from dataclasses import replace
from functools import partial

from resuming import train
from rich.console import Console

from valuedice.training.progress import Display


def test_the_bar_fits_a_narrow_terminal(monkeypatch):
    monkeypatch.setattr("valuedice.training.progress.Console", partial(Console, force_terminal=True, width=80))
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    row = {"return_mean": 4099.4, "return_std": 81.2, "distance": 0.02512, "kl_estimate": 0.1714}
    with Display("dual-dice on HalfCheetah-v5", 20_000, "steps", goal="expert 4150") as display:
        display.advance(12_345)
        display.evaluated(row)
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue()).splitlines()
    # The last frame: the bar with its numbers in one line, the evaluation whole in the next.
    bar, result = [line for line in shown if line.strip()][-2:]
    assert re.search(r"dual-dice on HalfCheetah-v5 .* 12,345/20,000 \d+ steps/s", bar)
    assert result.rstrip() == "return 4099 ± 81 (expert 4150), distance 0.0251, KL 0.171"


def test_progress_away_from_a_terminal_is_a_line_for_each_evaluation(pendulum, capsys):
    train(pendulum, "Pendulum-v1", quiet=False, steps=12)
    shown = capsys.readouterr()
    assert shown.out == ""
    opening, *lines = shown.err.splitlines()
    assert opening == "value-dice on Pendulum-v1: warm start: 0 of 3 updates of cloning"
    assert [line.partition(", ")[0] for line in lines] == [
        f"value-dice on Pendulum-v1: {n}/12 steps" for n in (0, 4, 8, 12)
    ]
    assert all(
        "return -" in line and "distance" in line and "KL" in line and "steps/s" in line and "min left" in line
        for line in lines
    )
    assert "\x1b" not in shown.err


def test_a_name_in_brackets_is_shown_as_it_is_and_a_quiet_run_shows_nothing(pendulum, capsys):
    named = replace(pendulum, source="some/[bold]demos[x].npz")
    train(named, updates=2)
    assert "".join(capsys.readouterr()) == ""
    train(named, updates=2, quiet=False)
    assert "\nvalue-dice on [bold]demos[x]: 2/2 updates" in capsys.readouterr().err
