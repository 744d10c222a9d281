"""What a person sees of a run, in a terminal."""

import io
import re
from functools import partial

from rich.console import Console

from valuedice.progress import Watch


def test_the_bar_fits_a_narrow_terminal(monkeypatch):
    monkeypatch.setattr("valuedice.progress.Console", partial(Console, force_terminal=True, width=80))
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    row = {"return_mean": 4099.4, "return_std": 81.2, "kl_estimate": 0.1714}
    with Watch("auto", "dual-dice on HalfCheetah-v5", 20_000, "steps", "expert 4150", 0) as watch:
        watch.advance(12_345)
        watch.evaluated(row)
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue()).splitlines()
    # The last frame: the bar with its numbers in one line, the evaluation whole in the next.
    bar, result = [line for line in shown if line.strip()][-2:]
    assert re.search(r"dual-dice on HalfCheetah-v5 .* 12,345/20,000 \d+ steps/s", bar)
    assert result.rstrip() == "return 4099 ± 81 (expert 4150), KL 0.171"
