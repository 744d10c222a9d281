"""The examples of the documentation run, and do what the page says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from examples import blocks, run_example


def test_the_examples_of_extending_run_one_after_the_other(own_folder, capsys):
    names: dict[str, Any] = {"__name__": "extending"}
    for code in blocks("extending.md"):
        run_example(code, names)
    assert capsys.readouterr().out.splitlines()[-1] == "[100, 200, 300]"
    rows = [json.loads(line) for line in Path("rows.jsonl").read_text().splitlines()]
    assert rows == names["cloned"].metrics
    assert rows[-1]["updates"] < 4_000
